//! The kernel's list of a process's mappings (`/proc/PID/maps`), read as regions.
use super::{FileState, Region};
use crate::event::{MapKind, Prot};

/// Anonymous writable memory from this size on, present at the start, is taken for the stack.
const STACK_AT_LEAST: u64 = 128 << 10;

/// The mappings in a text of `/proc/PID/maps` form as regions at guest addresses (host address
/// minus `guest_base`). Neighbouring parts of one file, and the anonymous part right behind them,
/// form an image. Lines that cannot be understood are left out: the list only ever adds detail.
/// `ask` is given path and inode number of a region's file and answers what is known of it.
pub fn parse_maps(
    text: &str,
    guest_base: u64,
    mut ask: impl FnMut(&str, u64) -> Option<FileState>,
) -> Vec<Region> {
    let mut out: Vec<Region> = Vec::new();
    let mut groups = 0;
    let mut previous = "";
    for line in text.lines() {
        let Some(Line { mut region, inode, path }) = parse_line(line, guest_base) else {
            continue;
        };
        let file = path.starts_with('/');
        if let Some(last) = out.last() {
            let joins = last.end == region.start && last.group != 0;
            if joins && file && path == previous {
                region.group = last.group;
            } else if joins && path.is_empty() && last.kind == MapKind::Image {
                region.group = last.group;
                region.kind = MapKind::ImageBss;
            }
        }
        if file {
            region.file = match out.last() {
                Some(last) if path == previous => last.file,
                _ => ask(path, inode),
            };
        }
        if file && region.group == 0 {
            groups += 1;
            region.group = groups;
        }
        previous = path;
        out.push(region);
    }
    out
}

/// What a line says.
struct Line<'a> {
    region: Region,
    inode: u64,
    path: &'a str,
}

fn parse_line(line: &str, guest_base: u64) -> Option<Line<'_>> {
    // address perms offset dev inode path; the path may hold blanks and is the rest.
    let mut rest = line;
    let mut field = || {
        rest = rest.trim_start();
        let (f, tail) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
        rest = tail;
        f
    };
    let (range, perms, offset, _dev, inode) = (field(), field(), field(), field(), field());
    let path = rest.trim();
    let (start, end) = range.split_once('-')?;
    let hex = |s: &str| u64::from_str_radix(s, 16).ok();
    let start = hex(start)?.checked_sub(guest_base)?;
    let end = hex(end)?.checked_sub(guest_base)?;
    let p = perms.as_bytes();
    let bit = |i: usize, c: u8, v: u8| if p.get(i) == Some(&c) { v } else { 0 };
    let mut prot = bit(0, b'r', 1) | bit(1, b'w', 2) | bit(2, b'x', 4);
    let kind = match path {
        "[stack]" => MapKind::Stack,
        _ if path.starts_with('/') => MapKind::Image,
        // An emulator's list does not name the guest's stack. Beside it and the images a program
        // finds no anonymous memory of size before its first instruction.
        "" if prot == 3 && end - start >= STACK_AT_LEAST => MapKind::Stack,
        _ => MapKind::Unknown,
    };
    // An emulator reads guest code and never executes it in place, so it maps it without the right
    // to.
    if kind == MapKind::Image && prot == 1 {
        prot |= 4;
    }
    let region = Region {
        start,
        end,
        prot: Prot(prot),
        kind,
        file_offset: hex(offset)?,
        file: None,
        group: 0,
    };
    Some(Line { region, inode: inode.parse().ok()?, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
4000000000-4000003000 r--p 00000000 fe:00 9978430  /opt/a program
4000003000-4000005000 rw-p 00003000 fe:00 9978430  /opt/a program
4000005000-4000006000 rw-p 00000000 00:00 0
4002006000-4002806000 rw-p 00000000 00:00 0        [stack]
4002806000-4002837000 r--p 00000000 fe:00 325835   /lib/ld.so
nonsense
";

    #[test]
    fn an_image_is_its_file_parts_and_the_tail_behind_them() {
        let mut asked = Vec::new();
        let r = parse_maps(TEXT, 0x1000, |path, inode| {
            asked.push((path.to_owned(), inode));
            Some(FileState { bytes: inode, ..FileState::default() })
        });
        let expected = [("/opt/a program", 9_978_430), ("/lib/ld.so", 325_835)];
        assert_eq!(asked, expected.map(|(path, inode)| (path.to_owned(), inode)));
        let files: Vec<u64> = r.iter().map(|r| r.file.map_or(0, |f| f.bytes)).collect();
        assert_eq!(files, [9_978_430, 9_978_430, 0, 0, 325_835]);
        let seen: Vec<_> = r.iter().map(|r| (r.kind, r.group)).collect();
        use MapKind::{Image, ImageBss, Stack};
        assert_eq!(seen, [(Image, 1), (Image, 1), (ImageBss, 1), (Stack, 0), (Image, 2)]);
        assert_eq!((r[0].start, r[1].file_offset, r[1].prot.0), (0x3f_ffff_f000, 0x3000, 3));
    }
}
