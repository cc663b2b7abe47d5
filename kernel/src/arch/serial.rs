//! The first serial port, polled: the only output, which works from the first instruction.

use core::fmt;

use super::cpu::{inb, outb};

const PORT: u16 = 0x3f8;

/// 115200 baud, 8 bits, no parity, FIFO on.
pub fn init() {
    for (register, value) in
        [(1, 0x00), (3, 0x80), (0, 0x01), (1, 0x00), (3, 0x03), (2, 0xc7), (4, 0x03)]
    {
        outb(PORT + register, value);
    }
}

/// For `write!`.
pub struct Serial;

impl fmt::Write for Serial {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for byte in s.bytes() {
            while inb(PORT + 5) & 0x20 == 0 {
                core::hint::spin_loop();
            }
            outb(PORT, byte);
        }
        Ok(())
    }
}

/// A line on the serial port.
#[macro_export]
macro_rules! println {
    ($($arg:tt)*) => {{
        use core::fmt::Write;
        let _ = writeln!($crate::arch::serial::Serial, $($arg)*);
    }};
}
