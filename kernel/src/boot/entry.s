# From the hypervisor's 32-bit entry to Rust in the high half. %ebx holds the physical address of the start info; it
# travels in %edi, where the C convention wants the first argument.

.section .note.Xen, "a", @note
.balign 4
.long 4, 8, 18                      # name size, descriptor size, XEN_ELFNOTE_PHYS32_ENTRY
.asciz "Xen"
.quad pvh_entry

.section .boot, "awx", @progbits
.code32
.global pvh_entry
pvh_entry:
    cli
    cld
    movl %ebx, %edi
    movl $boot_root, %eax
    movl %eax, %cr3
    movl $0x20, %eax                # CR4: PAE; no global pages, so that a load of CR3 drops everything
    movl %eax, %cr4
    movl $0xc0000080, %ecx          # EFER: long mode, no-execute
    xorl %edx, %edx
    movl $0x900, %eax
    wrmsr
    movl $0x80010033, %eax          # CR0: PG, WP, NE, ET, MP, PE; with WP ring 0 obeys read-only pages too
    movl %eax, %cr0
    lgdt gdt_pointer
    ljmp $8, $long_mode

.code64
long_mode:
    xorl %eax, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl %eax, %fs
    movl %eax, %gs
    lgdt gdt_pointer_high           # seen through the physmap, since the lower half will be emptied
    movl %edi, %edi                 # the upper half of the register is undefined after the jump
    movabsq $stack_top, %rsp
    xorl %ebp, %ebp
    movabsq $kernel_main, %rax
    callq *%rax
    ud2

.balign 8
gdt:
    .quad 0
    .quad 0x00af9b000000ffff        # selector 8: 64-bit code, ring 0
gdt_pointer:
    .word . - gdt - 1
    .long gdt
gdt_pointer_high:
    .word gdt_pointer - gdt - 1
    .quad gdt + 0xffff800000000000

# The first 4 GiB by 2 MiB pages: at 0 for the jump, at the physmap, and its lowest 2 GiB at the kernel's address.
.balign 4096
boot_root:
    .quad boot_low + 3
    .fill 255, 8, 0
    .quad boot_low + 3
    .fill 254, 8, 0
    .quad boot_high + 3
boot_low:
    .quad boot_pages + 3, boot_pages + 0x1003, boot_pages + 0x2003, boot_pages + 0x3003
    .fill 508, 8, 0
boot_high:
    .fill 510, 8, 0
    .quad boot_pages + 3, boot_pages + 0x1003
boot_pages:
    .set address, 0
    .rept 2048
    .quad address + 0x83            # present, writable, 2 MiB
    .set address, address + 0x200000
    .endr

.section .bss.stack, "aw", @nobits
.balign 4096
    .skip 0x40000
.global stack_top
stack_top:
