//! The fills on this computer, beside what its model makes of them.
//!
//! The library tells the machine how many nodes its lookups and insertions visit, and the model
//! charges each as it charges a level of a page table. What a visit costs by where the node's line
//! is, the simulated run prices apart (`price`).

use vellum::ObjectPart;
use vellum::addr::Va;
use vellum::space::{Access, Attrs, Placement, Rights};
use vellum_sim::file::Machine;
use vellum_sim::format::Format;
use vellum_sim::{Options, Parts};

use super::faults::SWITCH;
use super::host::{Case, PAGES, cases};
use crate::error::LabError;
use crate::repro::context::Context;
use crate::repro::fixture::{Fixture, Workload, boot};
use crate::repro::page::{Page, Row, Table};
use crate::repro::side;

/// Ratios of times: with the cursor, over without.
pub fn run(context: &Context<'_>, measured: &Page) -> Result<Result<Table, String>, LabError> {
    let cases = cases(PAGES);
    let modelled = side::by_side(&cases, |case| {
        let cycles = |value| cycles(context.machine, case, value);
        Ok(cycles("on")? / cycles("off")?)
    })?;
    let mut rows = Vec::new();
    for (case, modelled) in cases.iter().zip(modelled) {
        let Some(ratio) = measured.ours(case.name).and_then(Row::ratio) else {
            return Ok(Err(format!("`{}` was not measured", case.name)));
        };
        rows.push((case.name.to_owned(), [ratio, modelled]));
    }
    Ok(Ok(Table::beside_model("Time of a fault with the cursor over without", rows)))
}

fn cycles(machine: &Machine, case: &Case, value: &str) -> Result<f64, LabError> {
    let switches = [("thp", "never"), (SWITCH, value)];
    boot(&Parts::of(machine, 1), Options::default(), &switches, Fill(case))
}

struct Fill<'c>(&'c Case);

impl Workload for Fill<'_> {
    /// Cycles of a fault.
    type Out = f64;
    fn run<F: Format>(self, fixture: &Fixture<'_, '_, F>) -> Result<f64, LabError> {
        // The first makes tables and records warm.
        fill(self.0, fixture)?;
        fill(self.0, fixture)
    }
}

fn fill<F: Format>(case: &Case, fixture: &Fixture<'_, '_, F>) -> Result<f64, LabError> {
    let Fixture { vm, cpu, space } = *fixture;
    let bytes = (case.order.len() as u64) << 12;
    let object = vm.objects().create(bytes).map_err(LabError::failed)?;
    let part = ObjectPart { object: &object, offset: 0 };
    let attrs = Attrs::anonymous(Rights::READ_WRITE);
    let base =
        vm.map_object(space, Placement::Anywhere, bytes, attrs, part).map_err(LabError::failed)?;
    let (before, began) = (vm.machine().counters(0), cpu.now());
    for page in &case.order {
        vm.fault(space, Va(base.0 + (page << 12)), Access::Write).map_err(LabError::failed)?;
    }
    let took = cpu.now() - began;
    let cleared = vm.machine().counters(0).since(&before).get("cycles_clear").unwrap_or(0);
    vm.unmap(space, base, bytes).map_err(LabError::failed)?;
    vm.objects().discard(object);
    let took = if case.clears { took } else { took.saturating_sub(cleared) };
    Ok(took as f64 / case.order.len().max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_measured_fill_stands_beside_that_of_the_model() {
        let machine = vellum_sim::file::preset("milan").expect("a preset");
        let context = Context { machine: &machine, seed: 1 };
        let row = |case: Case| Row {
            name: case.name.to_owned(),
            published: [None, None],
            ours: [Some(200.0), Some(150.0)],
            spread: None,
            provenance: None,
        };
        let rows = cases(1).into_iter().map(row).collect();
        let table = Table { title: String::new(), columns: Default::default(), rows };
        let mut page = Page { tables: vec![table], ..Page::default() };
        let twin = run(&context, &page).expect("it runs").expect("a table");
        let ratios = |column: usize| {
            twin.rows.iter().map(|row| row.ours[column].expect("a figure")).collect::<Vec<_>>()
        };
        assert_eq!(ratios(0), [0.75; 3]);
        let [up, random, clears] = ratios(1)[..] else { panic!("three fills") };
        // Fewer nodes are visited, and what is cleared beside that is the same.
        assert!(up < 1.0 && random < 1.0 && up < clears && clears < 1.0, "{up} {random} {clears}");
        page.tables[0].rows.pop();
        assert!(run(&context, &page).expect("it runs").is_err());
    }
}
