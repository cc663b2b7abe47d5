# Entry of the 32 exceptions: one register picture for all, with a zero where the processor pushes no error code.

.section .text
.code64
trap_common:
    pushq %rax
    pushq %rcx
    pushq %rdx
    pushq %rbx
    pushq %rbp
    pushq %rsi
    pushq %rdi
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    cld
    movq %rsp, %rdi
    callq trap
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rdi
    popq %rsi
    popq %rbp
    popq %rbx
    popq %rdx
    popq %rcx
    popq %rax
    addq $16, %rsp
    iretq

.balign 16
.global trap_entries
trap_entries:
    .set vector, 0
    .rept 32
    .balign 16
    .if ((0x60227d00 >> vector) & 1) == 0   # 8, 10 to 14, 17, 21, 29 and 30 push an error code
    pushq $0
    .endif
    pushq $vector
    jmp trap_common
    .set vector, vector + 1
    .endr
