//! The experiment on a simulated machine.

use vellum_sim::file::Machine;
use vellum_sim::format::Format;
use vellum_sim::{Options, Parts};

use super::disciplines::{Discipline, Published, Tries, Visits, runs};
use super::faults::{self, Faults};
use super::library::Library;
use super::load::Load;
use super::price::{Price, price};
use super::{mix, prose, tables};
use crate::error::LabError;
use crate::repro::basis;
use crate::repro::context::Context;
use crate::repro::fixture::{Fixture, Workload, boot};
use crate::repro::page::{Page, Statement};
use crate::repro::side;
use crate::shipped;

/// Runs of the program, and those of them whose visits are priced.
pub const RUNS: usize = 8;
const PRICED: usize = 2;
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
    /// Of each priced run, by how warm its calls are: from the root, and with a cursor.
    pub prices: Vec<[[Price; 2]; 2]>,
}

/// The page.
pub fn run(context: &Context<'_>) -> Result<Page, LabError> {
    let machine = context.machine;
    let load = load()?;
    let disciplines = [Discipline::Root, Discipline::Faults];
    let prices =
        side::by_side(&disciplines, |&discipline| price(machine, &load, discipline, PRICED))?;
    let taken = Taken {
        compiled: compiled(machine, &load)?,
        mixed: shapes(machine, &|discipline, tries| mix::fill(context.seed, discipline, tries))?,
        faults: faults::count(machine, &load)?,
        prices: (0..PRICED).map(|run| [prices[0][run], prices[1][run]]).collect(),
    };
    let mut page = prose::page(context, &taken);
    page.tables = tables::all(machine, &taken)?;
    page.statements = statements(machine, &taken)?;
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
        boot(&Parts::of(machine, 1), Options::default(), &[], work)
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

/// Cycles saved by the cursor in the last priced run, in hundredths of the published ones.
pub fn share(saved: f64) -> f64 {
    100.0 * saved / super::published::ALLOC
}

fn statements(machine: &Machine, taken: &Taken) -> Result<Vec<Statement>, LabError> {
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
    let saved = taken.saved(PRICED - 1, |price| price.cached);
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
            what: "cycles saved a call, % of those published before".into(),
            value: share(saved),
            band: SHARE,
            provenance: basis::provenance(machine, &PRICE)?,
        },
    ])
}

impl Taken {
    /// Cycles that the cursor saves a call of a priced run, by one of the prices.
    pub fn saved(&self, run: usize, by: impl Fn(&Price) -> f64) -> f64 {
        let [root, faults] = &self.prices[run];
        by(&root[0]) - by(&faults[0])
    }
}
