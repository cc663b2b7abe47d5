//! The data flow over machine code, without QEMU: the plugin cannot be linked outside it, its
//! `flow` can.
#[path = "../src/flow/mod.rs"]
mod flow;

use flow::block::Follower;
use flow::branch::Branch;
use flow::carry::{Carry, PERIOD};
use flow::{Effect, Report, Uses};

/// A translated block: its accesses' registers, and what it does as a whole.
fn translate(code: &[&[u8]]) -> (Vec<Uses>, Effect) {
    let mut f = Follower::new();
    let uses = code.iter().map(|i| f.step(i)).collect();
    (uses, f.effect())
}

/// The branch of a block that ends without a condition.
fn unconditional() -> &'static Branch {
    Box::leak(Box::default())
}

/// Runs a block: for each instruction `L` if what it loads is dependent, `S` if what it stores is,
/// `B` if both, else a dot.
fn run(carry: &mut Carry, code: &[&[u8]]) -> String {
    let (uses, effect) = translate(code);
    carry.enter(0, &effect, unconditional());
    let mark = |u: &Uses| match (carry.depends(u.loads), carry.depends(u.stores)) {
        (false, false) => '.',
        (true, false) => 'L',
        (false, true) => 'S',
        (true, true) => 'B',
    };
    uses.iter().map(mark).collect()
}

/// Runs one block from nothing.
fn once(code: &[&[u8]]) -> String {
    run(&mut Carry::new(), code)
}

/// `n` instructions that do nothing.
fn wait(carry: &mut Carry, n: u32) {
    let (_, effect) = translate(&vec![&b"\x90"[..]; n as usize]);
    carry.enter(0, &effect, unconditional());
}

const MOV_RAX_FROM_RAX: &[u8] = b"\x48\x8b\x00";
const MOV_RAX_FROM_RBX: &[u8] = b"\x48\x8b\x03";
const MOV_RDX_FROM_RAX: &[u8] = b"\x48\x8b\x10";
const MOV_RDX_FROM_RCX: &[u8] = b"\x48\x8b\x11";
const MOV_RDX_FROM_RCX_RAX: &[u8] = b"\x48\x8b\x14\x01";
const JNE: &[u8] = b"\x75\xf0";

#[test]
fn a_pointer_chase_is_dependent_every_time_but_the_first() {
    // mov rax,[rax]; test rax,rax; jne
    let code = [MOV_RAX_FROM_RAX, b"\x48\x85\xc0", JNE];
    let mut c = Carry::new();
    assert_eq!(run(&mut c, &code), "...");
    for turn in 0..1000 {
        assert_eq!(run(&mut c, &code), "L..", "turn {turn}");
    }
}

#[test]
fn a_stride_through_an_array_never_is() {
    // mov rdx,[rdi+rcx*8]; add rbx,rdx; add rcx,1; cmp rcx,rsi; jne
    let code =
        [&b"\x48\x8b\x14\xcf"[..], b"\x48\x01\xd3", b"\x48\x83\xc1\x01", b"\x48\x39\xf1", JNE];
    let mut c = Carry::new();
    for turn in 0..1000 {
        assert_eq!(run(&mut c, &code), ".....", "turn {turn}");
    }
}

#[test]
fn an_index_out_of_memory_makes_the_indexed_access_dependent_and_its_own_load_not() {
    // movsxd rax,dword [rsi+rcx*4]; add rbx,[rdi+rax*8]; inc rcx; cmp rcx,r8; jne
    let code =
        [&b"\x48\x63\x04\x8e"[..], b"\x48\x03\x1c\xc7", b"\x48\xff\xc1", b"\x4c\x39\xc1", JNE];
    let mut c = Carry::new();
    for turn in 0..1000 {
        assert_eq!(run(&mut c, &code), ".L...", "turn {turn}");
    }
}

#[test]
fn fields_of_the_next_node_are_dependent_loads_and_stores_alike() {
    // mov rdi,[rdi+16]; mov eax,[rdi]; add [rdi+8],eax; test rdi,rdi; jne
    let code = [&b"\x48\x8b\x7f\x10"[..], b"\x8b\x07", b"\x01\x47\x08", b"\x48\x85\xff", JNE];
    let mut c = Carry::new();
    assert_eq!(run(&mut c, &code), ".LB..");
    assert_eq!(run(&mut c, &code), "LLB..");
}

#[test]
fn a_base_loaded_before_a_loop_is_forgotten_after_a_reorder_window() {
    let mut c = Carry::new();
    // mov rdi,[rbx+8]
    run(&mut c, &[b"\x48\x8b\x7b\x08"]);
    let code =
        [&b"\x48\x8b\x14\xcf"[..], b"\x48\x01\xd3", b"\x48\x83\xc1\x01", b"\x48\x39\xf1", JNE];
    let turns: Vec<bool> = (0..200).map(|_| run(&mut c, &code) == "L....").collect();
    let dependent = turns.iter().take_while(|t| **t).count();
    // A turn is five instructions; the last one has to begin in time.
    assert!(
        (PERIOD as usize / 5..=2 * PERIOD as usize / 5 + 1).contains(&dependent),
        "{dependent} turns"
    );
    assert!(turns[dependent..].iter().all(|t| !t));
}

#[test]
fn an_index_that_was_loaded_and_is_counted_up_is_none_from_the_next_block_on() {
    let mut c = Carry::new();
    // mov rcx,[rbx], then: mov eax,[rsi+rcx*4]; add rbx,[rdi+rax*8]; inc rcx; jne
    run(&mut c, &[b"\x48\x8b\x0b"]);
    let code = [&b"\x8b\x04\x8e"[..], b"\x48\x03\x1c\xc7", b"\x48\xff\xc1", JNE];
    assert_eq!(run(&mut c, &code), "LL..");
    assert_eq!(run(&mut c, &code), ".L..");
    // As well by `add rcx,1`, `sub rcx,1`, `lea rcx,[rcx+8]`; not by what is computed.
    for (step, after) in [
        (&b"\x48\x83\xc1\x01"[..], "."),
        (b"\x48\x83\xe9\x01", "."),
        (b"\x48\x8d\x49\x08", "."),
        (b"\x48\x8d\x4c\x19\x08", "L"),
        (b"\x48\x01\xd9", "L"),
    ] {
        let mut c = Carry::new();
        run(&mut c, &[b"\x48\x8b\x0b"]);
        run(&mut c, &[step]);
        assert_eq!(run(&mut c, &[MOV_RDX_FROM_RCX]), after, "{step:x?}");
        // In the block of its load it is that load's.
        assert_eq!(once(&[b"\x48\x8b\x0b", step, MOV_RDX_FROM_RCX]), "..L", "{step:x?}");
    }
}

#[test]
fn a_conditional_move_waits_for_its_comparison_and_a_branch_does_not() {
    // cmp rdi,[rbx]; cmovb rcx,r9; mov rdx,[rcx]
    let compared = b"\x48\x3b\x3b";
    assert_eq!(once(&[compared, b"\x49\x0f\x42\xc9", MOV_RDX_FROM_RCX]), "..L");
    assert_eq!(once(&[compared, JNE, MOV_RDX_FROM_RCX]), "...");
    // cmp rdi,rsi says nothing of memory; setb cl does as a move.
    assert_eq!(once(&[b"\x48\x39\xf7", b"\x49\x0f\x42\xc9", MOV_RDX_FROM_RCX]), "...");
    assert_eq!(once(&[compared, b"\x0f\x92\xc1", MOV_RDX_FROM_RCX]), "..L");
}

/// Goes round a loop of two blocks: a comparison with a branch over the second block, which is
/// taken or not; says of each turn whether the load that follows was held up.
fn turns(compare: &[&[u8]], taken: impl Iterator<Item = bool>) -> Vec<bool> {
    let mut f = Follower::new();
    compare.iter().for_each(|i| _ = f.step(i));
    let branch: &'static Branch = Box::leak(Box::new(Branch::new(100, f.condition())));
    let mut carry = Carry::new();
    let each = |taken: bool| {
        carry.enter(50, &f.effect(), branch);
        assert!(!carry.is_held_up(), "what leads back is not on a condition");
        carry.enter(if taken { 200 } else { 100 }, &Effect::default(), unconditional());
        (carry.is_held_up(), carry.is_held_up())
    };
    let held_up: Vec<(bool, bool)> = taken.map(each).collect();
    assert!(held_up.iter().all(|(_, second)| !second), "the first load alone");
    held_up.into_iter().map(|(first, _)| first).collect()
}

#[test]
fn the_load_behind_a_branch_on_a_loaded_value_that_was_predicted_wrongly_waits_for_it() {
    // cmp rdi,[rbx]; jne
    let loaded = [&b"\x48\x3b\x3b"[..], JNE];
    let count = |held_up: Vec<bool>| held_up.into_iter().filter(|&h| h).count();
    assert_eq!(count(turns(&loaded, (0..1000).map(|_| true))), 1, "always taken");
    assert_eq!(count(turns(&loaded, (0..1000).map(|_| false))), 0, "never taken");
    // A loop of eight: its last turn until that is learned, and not the first of the next.
    let loops = turns(&loaded, (0..800).map(|n| n % 8 != 7));
    assert!(loops[7] && !loops[8] && count(loops) < 10);
    let mut x = 1u64;
    let chance = (0..10_000).map(|_| {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        x >> 63 == 1
    });
    assert!((4500..5500).contains(&count(turns(&loaded, chance))));
    // cmp rdi,rsi; jne: neither was loaded, so the core knows at once.
    let known = [&b"\x48\x39\xf7"[..], JNE];
    assert_eq!(count(turns(&known, (0..100).map(|n| n % 2 == 0))), 0);
}

/// Of the last 1000 of 3000 rounds, those whose last load was held up by the branch on a loaded
/// value before it. In a round another block comes first, which ends with `before`; `taken` says of
/// the round where both branches go.
fn held_up_behind(
    before: &'static Branch,
    effect: &Effect,
    mut taken: impl FnMut(u32) -> [bool; 2],
) -> usize {
    let mut f = Follower::new();
    // cmp rdi,[rbx]; jne
    [&b"\x48\x3b\x3b"[..], JNE].iter().for_each(|i| _ = f.step(i));
    let branch: &'static Branch = Box::leak(Box::new(Branch::new(200, f.condition())));
    let mut carry = Carry::new();
    let round = |n| {
        let [first, second] = taken(n);
        carry.enter(50, effect, before);
        carry.enter(if first { 150 } else { 100 }, &f.effect(), branch);
        carry.enter(if second { 250 } else { 200 }, &Effect::default(), unconditional());
        carry.is_held_up()
    };
    (0..3000).map(round).skip(2000).filter(|held_up| *held_up).count()
}

#[test]
fn a_branch_that_goes_as_one_on_known_values_did_is_predicted() {
    let mut f = Follower::new();
    // cmp rdi,rsi; jne
    [&b"\x48\x39\xf7"[..], JNE].iter().for_each(|i| _ = f.step(i));
    let known: &'static Branch = Box::leak(Box::new(Branch::new(100, f.condition())));
    let mut x = 1u64;
    let mut chance = |_| {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        [x >> 63 == 1; 2]
    };
    let held_up = held_up_behind(known, &f.effect(), &mut chance);
    assert!(held_up < 50, "{held_up} of 1000");
}

#[test]
fn jumps_without_a_condition_take_no_room_in_the_past() {
    let jump: &'static Branch = Box::leak(Box::new(Branch::new(100, 0)));
    let every_hundredth = |n: u32| [true, n.is_multiple_of(100)];
    assert_eq!(held_up_behind(jump, &Effect::default(), every_hundredth), 0);
}

#[test]
fn a_load_is_behind_a_wrong_prediction_though_right_ones_lie_between() {
    // cmp rdi,[rbx]; jne
    let mut f = Follower::new();
    [&b"\x48\x3b\x3b"[..], JNE].iter().for_each(|i| _ = f.step(i));
    let branch =
        |after| -> &'static Branch { Box::leak(Box::new(Branch::new(after, f.condition()))) };
    let (first, second) = (branch(100), branch(200));
    let mut carry = Carry::new();
    carry.enter(0, &Effect::default(), first);
    // Taken, which was not expected; then not taken, as expected.
    carry.enter(500, &Effect::default(), second);
    carry.enter(200, &Effect::default(), unconditional());
    assert!(carry.is_held_up() && !carry.is_held_up());
}

#[test]
fn a_loaded_value_lasts_one_to_two_periods_wherever_in_a_period_it_was_loaded() {
    for before in 0..2 * PERIOD {
        let lasts = |n: u32| {
            let mut c = Carry::new();
            wait(&mut c, before % PERIOD);
            run(&mut c, &[MOV_RAX_FROM_RBX]);
            (0..n).for_each(|_| wait(&mut c, 1));
            run(&mut c, &[MOV_RDX_FROM_RAX]) == "L"
        };
        assert!(lasts(PERIOD - 2), "{before}");
        assert!(!lasts(2 * PERIOD), "{before}");
    }
}

#[test]
fn values_from_fixed_places_are_not_loads_to_wait_for() {
    let code = [
        &b"\x48\x8b\x7c\x24\x08"[..],            // mov rdi,[rsp+8]
        b"\x48\x8b\x04\xcf",                     // mov rax,[rdi+rcx*8]
        b"\x48\x8b\x35\x40\x00\x00\x00",         // mov rsi,[rip+64]
        b"\x48\x8b\x06",                         // mov rax,[rsi]
        b"\x4c\x8b\x45\xf0",                     // mov r8,[rbp-16]
        b"\x49\x8b\x00",                         // mov rax,[r8]
        b"\x64\x48\x8b\x04\x25\x10\x00\x00\x00", // mov rax,fs:[16]
        MOV_RDX_FROM_RAX,
    ];
    assert_eq!(once(&code), "........");
    // leave; mov rax,[rbp+0]
    assert_eq!(once(&[b"\xc9", b"\x48\x8b\x45\x00"]), "..");
}

#[test]
fn a_new_value_ends_the_dependence() {
    // xor eax,eax and mov eax,5 need nothing of what eax was
    for kill in [&b"\x31\xc0"[..], b"\xb8\x05\x00\x00\x00"] {
        assert_eq!(
            once(&[MOV_RAX_FROM_RBX, MOV_RDX_FROM_RCX_RAX, kill, MOV_RDX_FROM_RCX_RAX]),
            ".L.."
        );
        let mut c = Carry::new();
        run(&mut c, &[MOV_RAX_FROM_RBX]);
        run(&mut c, &[kill]);
        assert_eq!(run(&mut c, &[MOV_RDX_FROM_RAX]), ".");
    }
    // The kernel's answer is not a load: mov rax,[rbx]; syscall
    let mut c = Carry::new();
    run(&mut c, &[MOV_RAX_FROM_RBX, b"\x0f\x05"]);
    assert_eq!(run(&mut c, &[MOV_RDX_FROM_RAX]), ".");
}

#[test]
fn arithmetic_and_moves_hand_the_dependence_on() {
    // mov rax,[rbx]; lea rcx,[rax+rax*2+5]; shl rcx,4; mov rdx,rcx; mov rsi,[rdi+rdx]
    let use_of_rdx = &b"\x48\x8b\x34\x17"[..];
    let steps = [&b"\x48\x8d\x4c\x40\x05"[..], b"\x48\xc1\xe1\x04", b"\x48\x89\xca"];
    assert_eq!(once(&[MOV_RAX_FROM_RBX, steps[0], steps[1], steps[2], use_of_rdx]), "....L");
    // The same with a block for each instruction.
    let mut c = Carry::new();
    for i in [MOV_RAX_FROM_RBX, steps[0], steps[1], steps[2]] {
        assert_eq!(run(&mut c, &[i]), ".");
    }
    assert_eq!(run(&mut c, &[use_of_rdx]), "L");
}

#[test]
fn a_copy_is_as_old_as_what_it_was_copied_from() {
    let mut c = Carry::new();
    run(&mut c, &[MOV_RAX_FROM_RBX]);
    for _ in 0..2 * PERIOD {
        // mov rcx,rax; mov rax,rcx
        run(&mut c, &[b"\x48\x89\xc1"]);
        run(&mut c, &[b"\x48\x89\xc8"]);
    }
    assert_eq!(run(&mut c, &[MOV_RDX_FROM_RAX, MOV_RDX_FROM_RCX]), "..");
}

#[test]
fn a_part_of_a_register_and_a_condition_leave_the_rest_as_it_was() {
    // mov rax,[rbx]; mov al,3; mov rdx,[rax]
    assert_eq!(once(&[MOV_RAX_FROM_RBX, b"\xb0\x03", MOV_RDX_FROM_RAX]), "..L");
    // mov rcx,[rbx]; cmovne rcx,r9; mov rdx,[rcx], and the other way round
    assert_eq!(once(&[b"\x48\x8b\x0b", b"\x49\x0f\x45\xc9", MOV_RDX_FROM_RCX]), "..L");
    assert_eq!(once(&[b"\x4c\x8b\x0b", b"\x49\x0f\x45\xc9", MOV_RDX_FROM_RCX]), "..L");
}

#[test]
fn the_stack_side_of_an_instruction_is_never_dependent() {
    let code = [
        MOV_RAX_FROM_RBX,
        b"\x50",     // push rax
        b"\xff\x30", // push [rax]
        b"\x59",     // pop rcx
        MOV_RDX_FROM_RCX,
        b"\xff\x50\x08", // call [rax+8]
    ];
    assert_eq!(once(&code), "..L..L");
}

#[test]
fn string_instructions_step_their_addresses_and_load_only_an_accumulator() {
    // mov rdi,[rbx] would taint rdi; movsb, stosb and cmpsb leave rsi and rdi what they were
    assert_eq!(once(&[b"\xa4", b"\xaa", b"\xa6", b"\xa4"]), "....");
    // mov rsi,[rbx]; movsb; lodsq; mov rdx,[rax]
    assert_eq!(once(&[b"\x48\x8b\x33", b"\xa4", b"\x48\xad", MOV_RDX_FROM_RAX]), ".LLL");
}

#[test]
fn exchanges_and_atomic_additions_carry_what_they_load() {
    // mov rax,[rbx]; xchg rcx,rax; mov rdx,[rcx]
    assert_eq!(once(&[MOV_RAX_FROM_RBX, b"\x48\x91", MOV_RDX_FROM_RCX]), "..L");
    // lock xadd [rbx],rcx; mov rdx,[rcx]
    assert_eq!(once(&[b"\xf0\x48\x0f\xc1\x0b", MOV_RDX_FROM_RCX]), ".L");
}

#[test]
fn what_passes_through_a_vector_register_or_cannot_be_decoded_is_not_followed() {
    // vpgatherqq ymm0,[rdi+ymm1*8],ymm2; vmovq rax,xmm0; mov rdx,[rax]
    assert_eq!(
        once(&[b"\xc4\xe2\xed\x91\x04\xcf", b"\xc4\xe1\xf9\x7e\xc0", MOV_RDX_FROM_RAX]),
        "..."
    );
    for bad in [
        &b"\x06"[..],
        b"\x48",
        b"",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        assert_eq!(once(&[MOV_RAX_FROM_RBX, bad, MOV_RDX_FROM_RAX]), "...");
    }
}

#[test]
fn instructions_that_modify_memory_are_told_from_those_that_copy_it() {
    let of = |code: &[u8]| {
        let (uses, _) = translate(&[code]);
        (uses[0].modifies, uses[0].atomic)
    };
    assert_eq!(of(b"\x80\x00\x01"), (true, false), "add byte [rax], 1");
    assert_eq!(of(b"\xf0\x0f\xb1\x0f"), (true, true), "lock cmpxchg [rdi], ecx");
    assert_eq!(of(b"\x87\x0f"), (true, true), "xchg [rdi], ecx");
    assert_eq!(of(b"\x8b\x07"), (false, false), "mov eax, [rdi]");
    assert_eq!(of(b"\x89\x07"), (false, false), "mov [rdi], eax");
    assert_eq!(of(b"\x39\x07"), (false, false), "cmp [rdi], eax");
    assert_eq!(of(b"\xa4"), (false, false), "movsb");
}

#[test]
fn what_qemu_will_say_of_an_instruction_is_known_for_the_plain_ones_only() {
    let said: [(&[u8], Report); 16] = [
        (MOV_RAX_FROM_RAX, Report::Load(3)),
        // mov [rbx],cl; push rax; call; ret
        (b"\x88\x0b", Report::Store(0)),
        (b"\x50", Report::Store(3)),
        (b"\xe8\x00\x00\x00\x00", Report::Store(3)),
        (b"\xc3", Report::Load(3)),
        // xor [rbp+rcx*8],rax, and the same in one piece
        (b"\x48\x31\x44\xcd\x00", Report::Modify(3)),
        (b"\xf0\x48\x31\x44\xcd\x00", Report::Open),
        // movups xmm0,[rax]; rep movsb; push [rax]
        (b"\x0f\x10\x00", Report::Open),
        (b"\xf3\xa4", Report::Open),
        (b"\xff\x30", Report::Open),
        // lea rax,[rax+8]; div rcx, which may fault
        (b"\x48\x8d\x40\x08", Report::Quiet),
        (b"\x48\xf7\xf1", Report::Open),
        (JNE, Report::Quiet),
        // mov fs,eax; wrfsbase eax; xgetbv: a value that must not be there is a fault
        (b"\x8e\xe0", Report::Open),
        (b"\xf3\x0f\xae\xd0", Report::Open),
        (b"\x0f\x01\xd0", Report::Open),
    ];
    for (code, report) in said {
        assert_eq!(translate(&[code]).0[0].report, report, "{code:x?}");
    }
}
