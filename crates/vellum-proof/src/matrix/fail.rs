//! A scenario that fails: shortened, and shown as a time line.

use std::fmt::Write;

use crate::explore::search::Found;
use crate::explore::tale;

use super::acts::Action;
use super::stage::Setting;
use super::states::ThirdCpu;
use super::{Depth, Scenario, replay, run};

/// The shortest setting that still fails: without the third CPU, without single steps.
fn shorten(setting: &Setting, found: Found, depth: Depth) -> (Setting, Found) {
    let (mut best, mut found) = (setting.clone(), found);
    loop {
        let mut shorter: Vec<Setting> = Vec::new();
        if best.lines.len() == 3 && !best.third.comes() {
            let mut without = best.clone();
            without.lines.pop();
            without.third = ThirdCpu::None;
            shorter.push(without);
        }
        for (cpu, line) in best.lines.iter().enumerate().filter(|(_, line)| line.steps.len() > 1) {
            // Who does not run the space cannot use it.
            let may_go = |&n: &usize| !matches!(line.steps[n].act, Action::Activate | Action::Idle);
            for step in (0..line.steps.len()).filter(may_go) {
                let mut without = best.clone();
                without.lines[cpu].steps.remove(step);
                shorter.push(without);
            }
        }
        let mut still =
            shorter.into_iter().filter_map(|s| Some((s.clone(), run(&s, depth).err()?)));
        match still.next() {
            Some((setting, what)) => (best, found) = (setting, *what),
            None => return (best, found),
        }
    }
}

/// What to say of a scenario that failed.
pub fn explain(scenario: &Scenario, found: &Found, depth: Depth) -> String {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let (setting, short) = shorten(&scenario.setting(), found.clone(), depth);
    tale::begin();
    let again = replay(&setting, &short.schedule);
    let line = tale::end(setting.cpus());
    std::panic::set_hook(hook);
    let mut text = String::new();
    let _ = writeln!(text, "{scenario}: {}", found.what);
    let _ = writeln!(
        text,
        "replay: vellum-proof matrix --scenario {scenario} --schedule {}",
        found.schedule
    );
    let _ = writeln!(text, "\nthe shortest that fails, schedule {}:", short.schedule);
    for (cpu, line) in setting.lines.iter().enumerate() {
        let acts: Vec<String> = line.steps.iter().map(|s| format!("{:?}", s.act)).collect();
        let _ = writeln!(text, "  CPU {cpu}: {}", acts.join("; "));
    }
    let _ = writeln!(text, "{}\n\n{line}", again.err().unwrap_or_default());
    text
}
