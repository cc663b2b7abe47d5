//! Lists the calls of a trace, one a line.
use std::error::Error;
use std::io::Write;
use vellum_trace::TraceReader;
use vellum_trace::event::Event;

fn main() -> Result<(), Box<dyn Error>> {
    for path in std::env::args().skip(1) {
        let mut reader = TraceReader::open(&path)?;
        let (mut block, mut out) = (Vec::new(), std::io::stdout().lock());
        while reader.next_block(&mut block)? {
            for e in &block {
                if let Event::Call(c) = e {
                    writeln!(out, "{} {:x?}", c.order, c.change)?;
                }
            }
        }
    }
    Ok(())
}
