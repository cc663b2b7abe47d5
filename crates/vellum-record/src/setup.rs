//! From QEMU's call to a running recorder, and its end.
use crate::api::{self, Info, PluginId};
use crate::files::ask;
use crate::sink::queue::Queue;
use crate::sink::{Message, Sink};
use crate::ticker::Ticker;
use crate::{calls, descriptors, hot, order};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::sync::{Arc, mpsc};
use vellum_trace::build::{Builder, Clock, Window};
use vellum_trace::record::shared::Shared;
use vellum_trace::{Header, TraceWriter};

static QUEUE: Queue<Message> = Queue::new();

struct Options {
    out: String,
    header: Header,
    window: Option<Window>,
    clock: Option<Clock>,
    level: i32,
    shared: Option<Arc<Shared>>,
}

fn options(args: &[String]) -> Result<Options, String> {
    let mut o = Options {
        out: String::new(),
        header: Header { arch: "x86_64".into(), page_size: 4096, ..Header::default() },
        window: None,
        clock: None,
        shared: None,
        level: vellum_trace::LEVEL_FAST,
    };
    for arg in args {
        let Some((key, value)) = arg.split_once('=') else {
            return Err(format!("argument {arg} is not KEY=VALUE"));
        };
        match key {
            "out" => o.out = value.to_owned(),
            "meta" => {
                let taken = Shared::take(Path::new(value)).map_err(|e| format!("{value}: {e}"))?;
                o.header =
                    Header::decode(&taken.1).ok_or(format!("{value}: not a trace header"))?;
                o.shared = Some(Arc::new(taken.0));
            }
            "window" => {
                let text = value.replace(':', ",");
                o.window = Some(text.parse().map_err(|e| format!("{value}: {e}"))?);
            }
            "clock" => {
                let text = value.replace(':', ",");
                o.clock = Some(text.parse().map_err(|_| format!("{value}: not a clock"))?);
            }
            "level" => {
                o.level = value.parse().map_err(|_| format!("level {value} is not a number"))?
            }
            "names" if matches!(value, "on" | "off") => ask::keep_names(value == "on"),
            "names" => return Err(format!("names is on or off, not {value}")),
            _ => {
                return Err(format!(
                    "unknown argument {key}; known are out, meta, window, clock, level, names"
                ));
            }
        }
    }
    if o.out.is_empty() {
        return Err("out=FILE is missing".into());
    }
    Ok(o)
}

/// QEMU's entry point.
///
/// # Safety
/// Called by QEMU once, with pointers that are valid for the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU's promise, stated above.
    let (target, system, args) = unsafe {
        let info = &*info;
        let mut args = Vec::new();
        for i in 0..usize::try_from(argc).unwrap_or(0) {
            args.push(CStr::from_ptr(*argv.add(i)).to_string_lossy().into_owned());
        }
        let target = CStr::from_ptr(info.target_name).to_string_lossy();
        (target.into_owned(), info.system_emulation, args)
    };
    if system || target != "x86_64" {
        eprintln!("vellum recorder: works with qemu-x86_64 (user mode) only, not with {target}");
        return 1;
    }
    match start(id, &args) {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("vellum recorder: {why}");
            1
        }
    }
}

/// Starts a thread of ours. QEMU delivers guest signals to whichever thread is hit; these must not
/// be.
fn background(work: impl FnOnce() + Send + 'static) -> Result<(), String> {
    // SAFETY: plain calls with properly initialised sets.
    let spawned = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut old);
        let t = std::thread::Builder::new().name("vellum-record".into()).spawn(work);
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
        t
    };
    spawned.map(drop).map_err(|e| format!("no background thread: {e}"))
}

fn start(id: PluginId, args: &[String]) -> Result<(), String> {
    let o = options(args)?;
    let file = File::create(&o.out).map_err(|e| format!("{}: {e}", o.out))?;
    let file = match descriptors::out_of_the_way(file.as_raw_fd()) {
        // SAFETY: the descriptor is new, and owned here alone.
        Some(new) => unsafe { File::from_raw_fd(new) },
        None => file,
    };
    let number = file.as_raw_fd();
    let writer = TraceWriter::new(file, &o.header, o.level).map_err(|e| e.to_string())?;
    let sink = Sink::new(Builder::new(writer, o.window), o.shared.clone());
    let (is_apart, apart) = mpsc::channel();
    let from = QUEUE.receiver();
    background(move || {
        let _ = is_apart.send(descriptors::apart(number));
        sink.run(&from);
    })?;
    if apart.recv() == Ok(true) {
        descriptors::close(number);
    }
    order::begin(&QUEUE);
    let ticker = Ticker::new(o.clock, o.shared);
    background(move || ticker.run())?;
    // SAFETY: id is the one QEMU gave us; the callbacks have the types it expects.
    unsafe {
        api::qemu_plugin_register_vcpu_init_cb(id, on_start);
        api::qemu_plugin_register_vcpu_exit_cb(id, on_end);
        api::qemu_plugin_register_vcpu_tb_trans_cb(id, hot::on_translate);
        api::qemu_plugin_register_vcpu_syscall_cb(id, calls::on_entry);
        api::qemu_plugin_register_vcpu_syscall_ret_cb(id, calls::on_return);
        api::qemu_plugin_register_atexit_cb(id, on_exit, std::ptr::null_mut());
    }
    Ok(())
}

extern "C" fn on_start(_: PluginId, vcpu: c_uint) {
    if !order::detached() {
        order::lock().start(vcpu);
    }
}

extern "C" fn on_end(_: PluginId, vcpu: c_uint) {
    if !order::detached() {
        order::lock().end(vcpu);
    }
}

extern "C" fn on_exit(_: PluginId, _: *mut c_void) {
    if order::detached() {
        return;
    }
    let (done, wait) = mpsc::channel();
    {
        let mut o = order::lock();
        // Who closed it before waits for the end of the file in another thread.
        if !o.is_closed() {
            o.message(Message::Finish { code: calls::exit_code(), done });
            o.close();
        }
    }
    let _ = wait.recv();
    crate::sink::wait_for_end();
}
