//! What the library's own faults visit: the pages of one run, in their order, as pages of objects
//! or as private memory.

use std::collections::{HashMap, HashSet};

use vellum::ObjectPart;
use vellum::addr::Va;
use vellum::space::{Access, Attrs, Placement, Rights};
use vellum::stats::Counter;
use vellum_sim::file::Machine;
use vellum_sim::format::Format;
use vellum_sim::{Options, Parts};

use super::load::{Act, Load, ObjectPage};
use crate::error::LabError;
use crate::repro::fixture::{Fixture, Workload, boot};

/// The switch of the library that gives its fault a cursor.
pub const SWITCH: &str = "alloc.cursor";

/// Nodes visited for each fault of a run, with the switch off and on.
pub struct Faults {
    /// Pages of private memory.
    pub private: [f64; 2],
    /// Pages of objects.
    pub objects: [f64; 2],
}

/// Counts them on a machine.
pub fn count(machine: &Machine, load: &Load) -> Result<Faults, LabError> {
    let run = |as_objects, value| {
        let work = Run { load, as_objects };
        let switches = [("thp", "never"), (SWITCH, value)];
        boot(&Parts::of(machine, 1), Options::default(), &switches, work)
    };
    let both = |as_objects| Ok::<_, LabError>([run(as_objects, "off")?, run(as_objects, "on")?]);
    Ok(Faults { private: both(false)?, objects: both(true)? })
}

struct Run<'l> {
    load: &'l Load,
    as_objects: bool,
}

impl Workload for Run<'_> {
    type Out = f64;
    fn run<F: Format>(self, fixture: &Fixture<'_, '_, F>) -> Result<f64, LabError> {
        let Fixture { vm, space, .. } = *fixture;
        let mut seen = HashSet::new();
        let touched: Vec<ObjectPage> = self
            .load
            .moments
            .iter()
            .filter_map(|moment| match moment.act {
                Act::Touch(touched) => seen.insert(touched.of).then_some(touched.of),
                Act::Drop(_) => None,
            })
            .collect();
        let mut pages: HashMap<usize, u64> = HashMap::new();
        for page in &touched {
            let most = pages.entry(page.object).or_default();
            *most = (*most).max(page.index + 1);
        }
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        let (mut bases, mut objects) = (HashMap::new(), Vec::new());
        let mut sizes: Vec<(usize, u64)> = pages.into_iter().collect();
        sizes.sort_unstable();
        for (number, pages) in sizes {
            let (bytes, anywhere) = (pages << 12, Placement::Anywhere);
            let base = if self.as_objects {
                let object = vm.objects().create(bytes).map_err(LabError::failed)?;
                let part = ObjectPart { object: &object, offset: 0 };
                let base = vm.map_object(space, anywhere, bytes, attrs, part);
                objects.push(object);
                base
            } else {
                vm.map(space, anywhere, bytes, attrs)
            };
            bases.insert(number, base.map_err(LabError::failed)?);
        }
        let visits = || vm.stats().get(Counter::ObjectNodeVisits);
        let before = visits();
        for page in &touched {
            let va = Va(bases[&page.object].0 + (page.index << 12));
            vm.fault(space, va, Access::Write).map_err(LabError::failed)?;
        }
        let visited = visits() - before;
        objects.into_iter().for_each(|object| vm.objects().discard(object));
        Ok(visited as f64 / touched.len().max(1) as f64)
    }
}
