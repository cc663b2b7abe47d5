//! The same acts by the kernel under us, on a `memfd` with huge pages.
//!
//! A figure counts only if the kernel says that huge pages map all of the memory: whoever asks for
//! them may get pages of 4 KiB without a word. Where it takes none at the first touch, those that
//! it collapsed are mapped again, and cut off.

use std::fs::File;
use std::io;

use crate::bench::fixture::{HUGE, PAGE};
use crate::bench::linux::Area;
use crate::bench::linux::shared_memory;
use crate::bench::measure::time;

/// What was found, nanoseconds for each 2 MiB; nothing where the kernel did not do it.
pub(super) struct Found {
    /// In the order of `ROWS` of the blocks.
    pub each: [Option<f64>; 4],
    /// Why nothing was collapsed.
    pub refused: Option<io::Error>,
}

/// Shared memory and a mapping of it.
struct Shared {
    file: File,
    area: Area,
    bytes: u64,
}

impl Shared {
    fn new(bytes: u64) -> io::Result<Shared> {
        let file = shared_memory(bytes)?;
        Ok(Shared { area: Area::new(bytes, true)?.show(&file)?, file, bytes })
    }

    /// Each 2 MiB are touched for the first time.
    fn make(&self) -> Option<f64> {
        self.area.advise(true);
        let took = time(self.bytes / HUGE, || self.area.touch(HUGE, true));
        self.area.is_shared_huge().then_some(took)
    }

    /// Pages of 4 KiB become huge ones, and each of those is touched.
    fn collapse(&self) -> io::Result<f64> {
        self.area.advise(false);
        self.area.touch(PAGE, true);
        self.area.advise(true);
        let mut done = Ok(());
        let took = time(self.bytes / HUGE, || {
            done = self.area.collapse();
            self.area.touch(HUGE, true);
        });
        done?;
        let left = || io::Error::other("it left pages of 4 KiB");
        self.area.is_shared_huge().then_some(took).ok_or_else(left)
    }

    /// Each is touched by a second mapping.
    fn touch_again(&self) -> io::Result<Option<f64>> {
        let other = Area::new(self.bytes, true)?.show(&self.file)?;
        other.advise(true);
        let took = time(self.bytes / HUGE, || other.touch(HUGE, true));
        Ok(other.is_shared_huge().then_some(took))
    }

    /// Nobody maps them, and the file ends before them.
    fn cut(self) -> io::Result<f64> {
        let Shared { file, area, bytes } = self;
        drop(area);
        let mut done = Ok(());
        let took = time(bytes / HUGE, || done = file.set_len(0));
        done.map(|()| took)
    }
}

/// One turn through the acts.
pub(super) fn turn(bytes: u64) -> io::Result<Found> {
    let touched = Shared::new(bytes)?;
    let made = touched.make();
    let pages = Shared::new(bytes)?;
    let collapsed = pages.collapse();
    let blocks = if made.is_some() { Some(touched) } else { collapsed.is_ok().then_some(pages) };
    let (mut there, mut cut) = (None, None);
    if let Some(blocks) = blocks {
        there = blocks.touch_again()?;
        cut = Some(blocks.cut()?);
    }
    let (collapsed, refused) = match collapsed {
        Ok(took) => (Some(took), None),
        Err(why) => (None, Some(why)),
    };
    Ok(Found { each: [made, there, cut, collapsed], refused })
}
