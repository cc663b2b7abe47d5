//! The experiment on a simulated machine.

use vellum_sim::cache::Shape;
use vellum_sim::file::Machine;
use vellum_sim::format::Format;
use vellum_sim::{Options, Parts};

use super::faults::{self, Faults};
use super::load::Load;
use super::price::{Price, latencies, price};
use super::published::ALLOC;
use super::shapes::disciplines::{Discipline, Published, Tries, Visits, runs};
use super::shapes::library::Library;
use super::{mix, prose, tables};
use crate::error::LabError;
use crate::repro::basis::{self, Provenance};
use crate::repro::context::Context;
use crate::repro::fixture::{Fixture, Workload, boot};
use crate::repro::page::{Page, Statement};
use crate::repro::side;
use crate::shipped;

/// Runs of the program.
pub const RUNS: usize = 8;
/// Those of them whose visits are priced.
pub const PRICED: usize = 2;
/// What a price rests on.
pub const PRICE: [&str; 4] = ["l1d", "l2", "llc", "memory.latency"];
/// Nodes that a cursor is to save at least, in hundredths.
pub const SAVES: [f64; 2] = [40.0, 100.0];
/// Of the published cycles, in hundredths.
pub const SHARE: [f64; 2] = [5.0, 12.0];

/// What each discipline visits, in the published shape and in ours.
pub struct Shapes {
    /// The published shape.
    pub published: [Visits; 3],
    /// Ours.
    pub ours: [Visits; 3],
}

impl Shapes {
    /// Nodes that the cursor saves, in hundredths of those from the root.
    pub fn saved([root, _, faults]: &[Visits; 3]) -> f64 {
        100.0 * (1.0 - faults.each(faults.visits) / root.each(root.visits))
    }
}

/// All that is measured.
pub struct Taken {
    /// The compilations.
    pub compiled: Shapes,
    /// The invented mix.
    pub mixed: Shapes,
    /// The library's own faults.
    pub faults: Faults,
    /// Of visited lines.
    pub prices: Prices,
}

impl Taken {
    /// Cycles that a cursor in loops alone saves a call: none where the compilation's calls visit
    /// the same nodes. It is not priced otherwise.
    pub fn saved_by_loops(&self) -> Option<f64> {
        let [root, grabs, _] = &self.compiled.published;
        (root == grabs).then_some(0.0)
    }
}

/// Prices of visited lines on a machine.
pub struct Prices {
    /// Of each priced run, by how warm its calls are: from the root, and with a cursor.
    pub runs: Vec<[[Price; 2]; 2]>,
    /// Cycles of a line by level.
    pub latencies: [f64; 4],
}

impl Prices {
    fn on(machine: &Machine, load: &Load) -> Result<Prices, LabError> {
        let disciplines = [Discipline::Root, Discipline::Faults];
        let prices =
            side::by_side(&disciplines, |&discipline| price(machine, load, discipline, PRICED))?;
        let runs = (0..PRICED).map(|run| [prices[0][run], prices[1][run]]).collect();
        Ok(Prices { runs, latencies: latencies(machine) })
    }

    /// On a machine that may differ in its latencies alone: what is where is the same then.
    fn again(&self, machine: &Machine, other: &Machine, load: &Load) -> Result<Prices, LabError> {
        let shape =
            |machine: &Machine| Shape { latency: Default::default(), ..machine.hierarchy(1) };
        if shape(machine) != shape(other) {
            return Prices::on(other, load);
        }
        Ok(Prices { runs: self.runs.clone(), latencies: latencies(other) })
    }

    /// Cycles for each call of a run from the root and with a cursor, if lines cost so much.
    pub fn cycles(&self, run: usize, latencies: [f64; 4]) -> [f64; 2] {
        self.runs[run].map(|price| price[0].cycles(latencies))
    }

    /// Cycles that the cursor saves a call of a run by the simulated caches.
    pub fn saved(&self, run: usize) -> f64 {
        let [root, faults] = self.cycles(run, self.latencies);
        root - faults
    }

    /// The same if one level had all lines.
    pub fn saved_by(&self, run: usize, level: usize) -> f64 {
        let [root, faults] = self.cycles(run, [self.latencies[level]; 4]);
        root - faults
    }

    /// Ratios: cycles of the first run and the last, and of `alloc` in the last.
    fn ratios(&self) -> [f64; 3] {
        let ratio = |run| {
            let [root, faults] = self.cycles(run, self.latencies);
            faults / root
        };
        [ratio(0), ratio(PRICED - 1), 1.0 - self.saved(PRICED - 1) / ALLOC]
    }
}

/// What each of those ratios rests on.
pub type Rests = [Provenance; 3];

/// The page.
pub fn run(context: &Context<'_>) -> Result<Page, LabError> {
    let machine = context.machine;
    let load = load()?;
    let prices = Prices::on(machine, &load)?;
    let ratios = |other: &Machine| Ok(prices.again(machine, other, &load)?.ratios());
    let rests = basis::measured_provenances(machine, &PRICE, &ratios)?;
    let taken = Taken {
        compiled: compiled(machine, &load)?,
        mixed: shapes(machine, &|discipline, tries| mix::fill(context.seed, discipline, tries))?,
        faults: faults::count(machine, &load)?,
        prices,
    };
    let mut page = prose::page(context, &taken);
    page.tables = tables::all(machine, &taken, &rests)?;
    page.statements = statements(machine, &taken, rests)?;
    Ok(page)
}

/// The recorded compilation.
pub fn load() -> Result<Load, LabError> {
    Load::read(&shipped::trace("compile.vt")?)
}

/// Eight runs of it.
pub fn compiled(machine: &Machine, load: &Load) -> Result<Shapes, LabError> {
    shapes(machine, &|discipline, tries| runs(load, RUNS, discipline, tries))
}

type Play<'p> = dyn Fn(Discipline, &mut dyn Tries) + Sync + 'p;

fn shapes(machine: &Machine, play: &Play<'_>) -> Result<Shapes, LabError> {
    let published = Discipline::ALL.map(|discipline| {
        let mut tries = Published::default();
        play(discipline, &mut tries);
        tries.visits()
    });
    let ours = |discipline: &Discipline| {
        let work = Ours { play, discipline: *discipline };
        // One CPU: counters are summed over all of them at each step.
        let mut parts = Parts::of(machine, 1);
        parts.caches.cpus = 1;
        parts.cpu_node.truncate(1);
        boot(&parts, Options::default(), &[], work)
    };
    let ours = side::by_side(&Discipline::ALL, ours)?;
    Ok(Shapes { published, ours: [ours[0], ours[1], ours[2]] })
}

struct Ours<'p> {
    play: &'p Play<'p>,
    discipline: Discipline,
}

impl Workload for Ours<'_> {
    type Out = Visits;
    fn run<F: Format>(self, fixture: &Fixture<'_, '_, F>) -> Result<Visits, LabError> {
        let mut tries = Library::new(fixture.vm);
        (self.play)(self.discipline, &mut tries);
        tries.end()
    }
}

/// Saved cycles in hundredths of the published ones.
pub fn share(saved: f64) -> f64 {
    100.0 * saved / ALLOC
}

fn statements(
    machine: &Machine,
    taken: &Taken,
    [.., rests]: Rests,
) -> Result<Vec<Statement>, LabError> {
    let exact = || basis::provenance(machine, &[]);
    let insertions: u64 = [&taken.compiled, &taken.mixed]
        .iter()
        .flat_map(|shapes| [shapes.published[2].insertion, shapes.ours[2].insertion])
        .sum();
    let saves = |id, whose: &str, visits: &[Visits; 3]| {
        Ok::<_, LabError>(Statement {
            id,
            what: format!("nodes saved a call, {whose} shape, %"),
            value: Shapes::saved(visits),
            band: SAVES,
            provenance: exact()?,
        })
    };
    let [off, on] = taken.faults.objects;
    Ok(vec![
        Statement {
            id: "C-2",
            what: "visits of insertions after their lookup".into(),
            value: insertions as f64,
            band: [0.0, 0.0],
            provenance: exact()?,
        },
        saves("C-13", "the published", &taken.compiled.published)?,
        saves("C-13-ours", "our", &taken.compiled.ours)?,
        Statement {
            id: "C-13-cycles",
            what: "cycles saved, % of the published".into(),
            value: share(taken.prices.saved(PRICED - 1)),
            band: SHARE,
            provenance: rests,
        },
        Statement {
            id: "C-13-library",
            what: "nodes saved a fault of the library's, %".into(),
            value: 100.0 * (1.0 - on / off),
            band: SAVES,
            provenance: exact()?,
        },
    ])
}
