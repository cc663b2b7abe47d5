//! Runs a list of commands, and finds the shortest list that still fails.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use vellum::entry::{Aarch64, Codec, X86_64};
use vellum::machine::Machine;
use vellum::vm::Vm;
use vellum_host::memory::{ALIGN, Memory};
use vellum_host::rng::Rng;

use crate::command::Command;
use crate::play::{Outcome, Play};
use crate::setting::Setting;
use crate::small::Small;
use crate::source::Bytes;

/// How often a run looks at everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Care {
    /// Commands from one recount to the next.
    pub recount: u64,
    /// Commands from one comparison of every page to the next.
    pub compare: u64,
}

impl Care {
    /// After every command.
    pub const GREAT: Care = Care { recount: 1, compare: 1 };
    /// Now and then, and at the end.
    pub const USUAL: Care = Care { recount: 997, compare: 1499 };
}

/// What went wrong, and at which command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The number of the command, or of all of them if it was the end that failed.
    pub at: usize,
    /// What was said.
    pub what: String,
}

/// Runs commands in a setting.
///
/// # Errors
/// The first difference.
pub fn run(
    setting: &Setting,
    commands: impl Iterator<Item = Command>,
    care: Care,
) -> Result<Outcome, Failure> {
    if setting.arm {
        on::<Aarch64>(setting, commands, care)
    } else {
        on::<X86_64>(setting, commands, care)
    }
}

fn on<C: Codec>(
    setting: &Setting,
    commands: impl Iterator<Item = Command>,
    care: Care,
) -> Result<Outcome, Failure> {
    let mut at = 0;
    let tried = catch_unwind(AssertUnwindSafe(|| {
        let machine = Small::<C>::new(setting.plan).expect("memory of the system");
        let layout = Vm::<Small<C>>::layout(machine.topology());
        let meta = Memory::new(layout.size(), false).expect("memory of the system");
        assert!(layout.align() <= ALIGN);
        // SAFETY: zeroed, as long and as aligned as asked for, kept until the value is gone.
        let vm =
            unsafe { Vm::new(machine, setting.config, meta.base()) }.expect("a machine that fits");
        let mut play = Play::new(&vm, setting);
        for (n, command) in commands.enumerate() {
            at = n;
            play.step(command);
            if (n as u64 + 1).is_multiple_of(care.recount) {
                play.recount();
            }
            if (n as u64 + 1).is_multiple_of(care.compare) {
                play.compare();
            }
        }
        at += 1;
        play.finish()
    }));
    tried.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
        Failure { at, what: text.unwrap_or_default() }
    })
}

/// The commands of a seed.
pub fn of_seed(seed: u64, commands: usize) -> impl Iterator<Item = Command> {
    let mut rng = Rng::new(seed);
    (0..commands).map(move |_| Command::draw(&mut rng))
}

/// The setting and the commands that a fuzzer's bytes mean: the first byte is the setting's number.
pub fn of_bytes(bytes: &[u8]) -> (Setting, impl Iterator<Item = Command> + '_) {
    let (&number, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let mut source = Bytes(rest);
    let commands =
        std::iter::from_fn(move || (!source.is_dry()).then(|| Command::draw(&mut source)));
    (Setting::of(number as u64), commands)
}

/// How long a search for the shortest list goes on.
const PATIENCE: Duration = Duration::from_secs(60);

/// The shortest list found that still fails: halves, quarters, ... single commands are left out as
/// long as that fails too.
pub fn shrink(setting: &Setting, commands: &[Command]) -> Vec<Command> {
    // Looking at everything after every command finds the place, and takes its time: only for lists
    // that are short already.
    let start = Instant::now();
    let fails = |list: &[Command]| {
        let often = 1 + list.len() as u64 / 64;
        let care = Care { recount: often, compare: often };
        if start.elapsed() > PATIENCE {
            None
        } else {
            run(setting, list.iter().copied(), care).err()
        }
    };
    let cut = |list: Vec<Command>, at: usize| list[..list.len().min(at + 1)].to_vec();
    let mut best = commands.to_vec();
    if let Some(failure) = fails(&best) {
        best = cut(best, failure.at);
    }
    let mut piece = best.len() / 2;
    while piece > 0 {
        let mut from = 0;
        while from < best.len() {
            let mut shorter = best.clone();
            shorter.drain(from..(from + piece).min(best.len()));
            match fails(&shorter) {
                Some(failure) => best = cut(shorter, failure.at),
                None => from += piece,
            }
        }
        piece /= 2;
    }
    best
}

/// Runs `body` without printing its panics: the caller reports a difference once.
pub fn quietly<T>(body: impl FnOnce() -> T) -> T {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let done = body();
    std::panic::set_hook(hook);
    done
}

/// Commands of a list that are shown.
const SHOWN: usize = 80;

/// A failure as a reader wants it: what was said, the shortest list of commands, what that says.
pub fn explain(setting: &Setting, commands: &[Command], failure: &Failure) -> String {
    let (short, again) = quietly(|| {
        let short = shrink(setting, commands);
        let again = run(setting, short.iter().copied(), Care::GREAT).err();
        (short, again)
    });
    let lines: String =
        short.iter().rev().take(SHOWN).rev().map(|command| format!("  {command:x?}\n")).collect();
    let (at, what, n) = (failure.at, &failure.what, short.len());
    let last = if n > SHOWN { format!(", the last {SHOWN} of them") } else { String::new() };
    format!(
        "command {at}: {what}\n{setting:?}\nshortest list found, {n} \
         commands{last}:\n{lines}which says: {again:?}"
    )
}
