//! `vellum trace`: look into a trace, or make one from lackey's text.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::{Map, Value, json};
use vellum_trace::info::{self, Info, Pressure};
use vellum_trace::{Header, Recorder, TraceError, TraceReader, TraceWriter, lackey};

use super::output::{print, print_json};
use crate::cli::TraceCommand;
use crate::error::LabError;
use crate::experiment::at;
use crate::progress::Progress;
use crate::report::number;

/// Does one of them.
pub fn run(command: &TraceCommand) -> Result<(), LabError> {
    match command {
        TraceCommand::Info { file, json } => {
            let info = info(file)?;
            if *json { print_json(&as_json(&info)) } else { print(&info.to_string()) }
        }
        TraceCommand::ImportLackey { input, output } => import(input, output),
    }
}

/// Reads a whole trace, with a bar over its bytes.
fn info(file: &Path) -> Result<Info, LabError> {
    // Refuses what is no file before a byte is read.
    drop(TraceReader::open(file).map_err(|e| at(file, e))?);
    let from = File::open(file).map_err(|e| at(file, e))?;
    let bytes = from.metadata().map_or(0, |m| m.len());
    let progress = Progress::new(bytes, &format!("reading {}", number::bytes(bytes as i64)));
    let counted = Counted { from, progress: &progress };
    let mut reader = TraceReader::new(BufReader::with_capacity(1 << 18, counted))
        .map_err(|e| at(file, e))?
        .up_to_the_last_block();
    info::analyse(&mut reader, info::Geometry::default()).map_err(|e| at(file, e))
}

/// A file whose reading is progress.
struct Counted<'a> {
    from: File,
    progress: &'a Progress,
}

impl Read for Counted<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(to)?;
        self.progress.add(n as u64);
        Ok(n)
    }
}

fn import(input: &Path, output: &Path) -> Result<(), LabError> {
    let from: Box<dyn BufRead> = if input.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(input).map_err(|e| at(input, e))?))
    };
    replaceable(input, output)?;
    // Written beside its name and renamed when complete: a broken import leaves nothing that looks
    // like a trace.
    let mut partial = output.as_os_str().to_owned();
    partial.push(".partial");
    let file = File::create_new(&partial).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => at(output, IN_THE_WAY),
        _ => at(output, e),
    })?;
    let result = convert(from, (file, Path::new(&partial)), input, output);
    if result.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    result
}

/// What an earlier recording or import has left may be all that there is of it.
const IN_THE_WAY: &str = "a file of that name and .partial is there, of an earlier recording \
                          perhaps; remove it, or give -o another name";

/// Refuses to put a trace in the place of a device, a folder, or the text that it is made from.
fn replaceable(input: &Path, output: &Path) -> Result<(), LabError> {
    let Ok(there) = std::fs::symlink_metadata(output) else { return Ok(()) };
    if !there.is_file() {
        let why = "there is something that is no regular file; give -o a name to write to";
        return Err(at(output, why));
    }
    let read = std::fs::metadata(input).ok().map(|m| (m.dev(), m.ino()));
    if read == Some((there.dev(), there.ino())) {
        return Err(at(output, "that is the text to be read; give -o another name"));
    }
    Ok(())
}

fn convert(
    from: Box<dyn BufRead>,
    (file, partial): (File, &Path),
    input: &Path,
    output: &Path,
) -> Result<(), LabError> {
    let header = Header {
        command: vec![input.display().to_string()],
        recorder: Recorder::Lackey,
        arch: "x86_64".to_owned(),
        page_size: 4096,
        ..Header::default()
    };
    let unwritten =
        |e: &dyn std::fmt::Display| LabError::failed(format_args!("{}: {e}", output.display()));
    let writer = TraceWriter::new(BufWriter::new(file), &header, vellum_trace::LEVEL_FAST)
        .map_err(|e| unwritten(&e))?;
    let (totals, _) = lackey::import(from, writer).map_err(|e| match e {
        TraceError::Io { doing, .. } if doing != lackey::READING => unwritten(&e),
        e => at(input, e),
    })?;
    std::fs::rename(partial, output).map_err(|e| unwritten(&e))?;
    print(&format!(
        "{}: {} accesses, {} touched\n",
        output.display(),
        number::scaled(totals.accesses() as i64),
        number::bytes(totals.touched_pages as i64 * 4096)
    ))
}

fn as_json(info: &Info) -> Map<String, Value> {
    let t = &info.totals;
    let pressure = |p: &Pressure| -> Value {
        let Pressure { accesses, first_misses, walks, .. } = p;
        json!({ "accesses": accesses, "first_misses": first_misses, "walks": walks })
    };
    let kinds: Map<String, Value> =
        info.by_kind.iter().map(|(k, n)| (format!("{k:?}"), (*n).into())).collect();
    let mut doc = Map::new();
    let mut put = |name: &str, value: Value| doc.insert(name.to_owned(), value);
    put("command", info.header.command.clone().into());
    put("window", info.header.window.clone().into());
    put("partial", info.partial.into());
    put("accesses", t.accesses().into());
    put("accesses_skipped", t.skipped_accesses.into());
    put("kernel_lines", t.kernel.into());
    put("instructions", t.instructions.into());
    put("threads", t.threads.into());
    put("calls", t.calls.into());
    let f = &info.files;
    put(
        "files",
        json!({
            "named": f.files,
            "bytes_read": f.read,
            "bytes_written": f.written,
            "bytes_mapped": f.mapped,
        }),
    );
    put("mappings", t.mappings.into());
    put("pages", info.pages.into());
    put("pages_revisited", info.revisited.into());
    put("blocks_2m", info.blocks.into());
    put("pages_by_kind", kinds.into());
    put("tlb_4k", pressure(&info.tlb_4k));
    put("tlb_2m", pressure(&info.tlb_2m));
    put("reuse_log2", info.reuse.to_vec().into());
    if let Some(n) = info.header.native {
        put(
            "native",
            json!({
                "minor_faults": n.minor_faults, "major_faults": n.major_faults,
                "peak_rss_bytes": n.peak_rss, "user_us": n.user_us, "system_us": n.system_us,
                "wall_us": n.wall_us, "thp_off": n.thp_off,
            }),
        );
    }
    doc
}
