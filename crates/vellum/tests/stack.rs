//! How much stack the verbs take. Alone in its file: a stack that is too small ends the process.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::hint::black_box;

use vellum_testkit::prelude::*;

/// Bytes of a thread's stack.
const STACK: usize = 64 << 10;
/// Those of them that a thread has used before it runs anything of ours, at most.
const THREAD: usize = 6 << 10;
/// Bytes that `docs/embedding.md` says are enough for a verb. Builds without optimisation take
/// several times as much.
const ENOUGH: usize = 8 << 10;

/// Runs with so many bytes of stack fewer.
#[inline(never)]
fn lower<R, const BYTES: usize>(act: impl FnOnce() -> R) -> R {
    let taken = [0u8; BYTES];
    black_box(&taken);
    let done = act();
    black_box(&taken);
    done
}

fn verbs(fx: &Fixture, object: &Object) {
    let space = fx.vm.create().expect("memory");
    fx.vm.activate(&space);
    fx.map(&space, AT, 8 * MIB2, RW);
    fx.map_object(&space, Va(AT.0 + (8 * MIB2)), 64 * KIB4, object);
    fx.map_private(&space, Va(AT.0 + (9 * MIB2)), 64 * KIB4, object);
    for at in [0, 8 * MIB2, 9 * MIB2] {
        for access in [Access::Read, Access::Write] {
            fx.vm.fault(&space, Va(AT.0 + at), access).expect("memory");
        }
    }
    fx.vm.copy_in(&space, Va(AT.0 + MIB2), &[7; 64]).expect("memory");
    let child = fx.vm.fork(&space).expect("memory");
    fx.vm.fault(&space, AT, Access::Write).expect("memory");
    fx.vm.protect(&space, AT, MIB2 / 2, Rights::READ).expect("memory");
    fx.vm.advise(&space, Va(AT.0 + KIB4), KIB4, Advice::DontNeed).expect("memory");
    fx.vm.unmap(&space, Va(AT.0 + MIB2), KIB4).expect("memory");
    fx.vm.exit(child);
    fx.vm.deactivate();
    fx.vm.exit(space);
}

#[test]
fn a_small_stack_is_enough_for_every_verb() {
    let fx = fixture(1 << 14, Config::default());
    let object = fx.object(64 * KIB4);
    let body = || {
        fx.run_on(0);
        if cfg!(debug_assertions) {
            verbs(&fx, &object);
        } else {
            lower::<_, { STACK - THREAD - ENOUGH }>(|| verbs(&fx, &object));
        }
    };
    let stack = if cfg!(debug_assertions) { 4 * STACK } else { STACK };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(stack).spawn_scoped(scope, body);
        thread.expect("a thread").join().expect("an end");
    });
    fx.vm.objects().discard(object);
}
