//! Scenarios: their names, all of them, and the slice that is run every time.

use std::str::FromStr;

use vellum_host::rng::spread;

use super::acts::{Action, Line, PageChoice, Step, scripts};
use super::stage::Setting;
use super::states::{Mmu, STATES, StartState, ThirdCpu};

/// A scenario.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    state: StartState,
    mmu: Mmu,
    third: ThirdCpu,
    first: Line,
    second: Line,
}

impl std::fmt::Display for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Scenario { state, mmu, third, first, second } = self;
        write!(f, "{}/{}/{}/{}/{}", state.name, mmu.name(), third.name(), first.name, second.name)
    }
}

/// The one of that name, or which names there are.
fn named<T>(
    what: &str,
    name: &str,
    all: impl IntoIterator<Item = T>,
    name_of: impl Fn(&T) -> String,
) -> Result<T, String> {
    let mut known = Vec::new();
    for one in all {
        if name_of(&one) == name {
            return Ok(one);
        }
        known.push(name_of(&one));
    }
    Err(format!("`{name}` is no {what}; there are: {}", known.join(", ")))
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(text: &str) -> Result<Scenario, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let [state, mmu, third, first, second] = parts[..] else {
            return Err(format!(
                "`{text}` is no scenario: state/mmu/third/script/script is wanted"
            ));
        };
        let line = |name| named("script", name, scripts(), |line| line.name.clone());
        let one = Scenario {
            state: named("state", state, STATES.iter().copied(), |s| s.name.into())?,
            mmu: named("MMU", mmu, Mmu::ALL, |m| m.name().into())?,
            third: named("third CPU", third, ThirdCpu::ALL, |t| t.name().into())?,
            first: line(first)?,
            second: line(second)?,
        };
        if !one.can_be() {
            return Err(format!(
                "`{text}` cannot be: the state has no child, object or pager, or one that is run \
                 ends"
            ));
        }
        Ok(one)
    }
}

impl Scenario {
    /// Whether its state has that in its name.
    pub fn is_of_state(&self, part: &str) -> bool {
        self.state.name.contains(part)
    }

    /// Whether it is run every time, if its pager is late, or its pages lie in blocks: each pair of
    /// scripts is in one of the states of that kind, and where it wants a child in those that have
    /// one.
    fn is_usual_of_its_kind(&self) -> bool {
        let is_alike = |state: &&StartState| match self.state.late {
            Some(_) => state.late.is_some(),
            None => state.block,
        };
        let mut alike = STATES.iter().filter(is_alike);
        let Some(place) = alike.clone().position(|state| *state == self.state) else { return true };
        let count = alike.by_ref().count() as u64;
        let names = self.first.name.bytes().chain([0]).chain(self.second.name.bytes());
        let pair = names.fold(0, |hash, byte| spread(hash ^ u64::from(byte)));
        self.first.wants_child() || self.second.wants_child() || pair % count == place as u64
    }

    fn can_be(&self) -> bool {
        let Scenario { state, first, second, .. } = self;
        fits(state, first) && fits(state, second) && meet(first, second)
    }

    /// What is built and played.
    pub fn setting(&self) -> Setting {
        let Scenario { state, mmu, third, first, second } = self.clone();
        let act = |act| Step { act, side: 0 };
        let arrives = |mut line: Line| {
            if third.comes() {
                line.steps.insert(0, act(Action::Activate));
            }
            line
        };
        let mut lines = vec![first, arrives(second)];
        let loads = vec![
            act(Action::Load(PageChoice::Page, 0)),
            act(Action::Yield),
            act(Action::Load(PageChoice::Page, 0)),
        ];
        let other = match third {
            ThirdCpu::None => None,
            ThirdCpu::HeldStore | ThirdCpu::ComeStore => {
                Some(vec![act(Action::Store(PageChoice::Page, 1))])
            }
            ThirdCpu::HeldLoad | ThirdCpu::ComeLoad => Some(loads),
        };
        lines.extend(other.map(|steps| arrives(Line { name: "third".to_string(), steps })));
        Setting { state, mmu, third, lines }
    }
}

/// Whether a script can be played in a state.
fn fits(state: &StartState, line: &Line) -> bool {
    (state.has_child() || !line.wants_child())
        && (state.object || !line.wants_object())
        && (state.paged || !line.wants_pager())
        && (state.logged || !line.wants_log())
        // Where in a block a hole begins the model does not know.
        && (!state.block || !line.seeks())
        && (state.block || !line.wants_blocks())
        // Zeros are written to each page of it.
        && (!state.block || !state.logged || !line.punches_many())
}

/// Whether two scripts can meet: a space ends when nobody is in it.
fn meet(first: &Line, second: &Line) -> bool {
    let exits = |line: &Line| line.steps.iter().any(|s| s.act == Action::Exit);
    !(exits(first) && second.wants_child() || exits(second) && first.wants_child())
}

/// Every pair of scripts that can meet in a state.
fn pairs(state: &StartState) -> Vec<(Line, Line)> {
    let lines: Vec<Line> = scripts().into_iter().filter(|line| fits(state, line)).collect();
    let mut pairs = Vec::new();
    for (n, first) in lines.iter().enumerate() {
        let seconds = lines[n..].iter().filter(|second| meet(first, second));
        pairs.extend(seconds.map(|second| (first.clone(), second.clone())));
    }
    pairs
}

/// Every scenario. Where the others arrive at a space that the first CPU runs, either script may be
/// the first.
pub fn all() -> Vec<Scenario> {
    let mut all = Vec::new();
    for state in STATES {
        for (first, second) in pairs(state) {
            for mmu in Mmu::ALL {
                for third in ThirdCpu::ALL {
                    let one = Scenario {
                        state: *state,
                        mmu,
                        third,
                        first: first.clone(),
                        second: second.clone(),
                    };
                    if third.comes() && first != second {
                        let turned = Scenario {
                            first: second.clone(),
                            second: first.clone(),
                            ..one.clone()
                        };
                        all.push(turned);
                    }
                    all.push(one);
                }
            }
        }
    }
    all
}

/// What is run every time: each pair of scripts in each state on one of the MMUs in turn, by two
/// CPUs, but in one of the states only whose pagers are late, or whose pages lie in blocks; and one
/// in so many of the scenarios with a third.
pub fn usual() -> Vec<Scenario> {
    let (pairs, triples): (Vec<_>, Vec<_>) =
        all().into_iter().partition(|one| one.third == ThirdCpu::None);
    let mut usual: Vec<Scenario> = pairs
        .chunks(Mmu::ALL.len())
        .enumerate()
        .map(|(n, mmus)| mmus[n % mmus.len()].clone())
        .filter(Scenario::is_usual_of_its_kind)
        .collect();
    let chosen = |n: &usize| spread(*n as u64).is_multiple_of(TRIPLES);
    usual.extend(triples.into_iter().enumerate().filter(|(n, _)| chosen(n)).map(|(_, one)| one));
    usual
}

/// One in so many scenarios with a third CPU is run every time.
const TRIPLES: u64 = 512;

/// One in `of` of all scenarios, spread over everything, the `n`-th such part.
pub fn slice(n: u64, of: u64) -> Vec<Scenario> {
    all()
        .into_iter()
        .enumerate()
        .filter(|(i, _)| spread(*i as u64) % of == n % of)
        .map(|(_, one)| one)
        .collect()
}
