//! A disk in memory that remembers every operation, so that the disk as it was at any of them can be made again: after a
//! kill, which keeps all that was written, or after a power cut, which keeps what was synced and any part of the rest.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use rand::RngExt as _;
use rand_chacha::ChaCha20Rng;
use redb::StorageBackend;

use crate::node::store::{Disk, StoreName};

/// What a file holds.
pub(super) type Images = BTreeMap<StoreName, Vec<u8>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Write { offset: usize, data: Vec<u8> },
    SetLen(usize),
    Sync,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Op {
    pub(super) store: StoreName,
    pub(super) kind: Kind,
}

#[derive(Debug, Default)]
struct Inner {
    start: Images,
    files: Images,
    ops: Vec<Op>,
    no_sync: bool,
    fails: Option<StoreName>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct MemDisk {
    inner: Arc<Mutex<Inner>>,
}

impl MemDisk {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn from(images: Images) -> Self {
        let disk = Self::new();
        *disk.inner.lock().unwrap() = Inner { start: images.clone(), files: images, ..Inner::default() };
        disk
    }

    pub(super) fn set_syncs(&self, syncs: bool) {
        self.inner.lock().unwrap().no_sync = !syncs;
    }

    /// From now on writes to this store fail.
    pub(super) fn fail(&self, store: StoreName) {
        self.inner.lock().unwrap().fails = Some(store);
    }

    pub(super) fn images(&self) -> Images {
        self.inner.lock().unwrap().files.clone()
    }

    pub(super) fn ops(&self) -> Vec<Op> {
        self.inner.lock().unwrap().ops.clone()
    }

    pub(super) fn op_count(&self) -> usize {
        self.inner.lock().unwrap().ops.len()
    }

    /// Syncs of each store since operation `from`: block store, state, application.
    pub(super) fn syncs_since(&self, from: usize) -> [usize; 3] {
        let ops = self.ops();
        StoreName::ALL.map(|store| ops[from..].iter().filter(|op| op.store == store && op.kind == Kind::Sync).count())
    }

    /// The stores that were written since operation `from`, each once for every run of operations.
    pub(super) fn order_since(&self, from: usize) -> Vec<StoreName> {
        let mut order: Vec<StoreName> = self.ops()[from..].iter().map(|op| op.store).collect();
        order.dedup();
        order
    }

    /// The disk after a kill just before operation `at`.
    pub(super) fn killed_at(&self, at: usize) -> Images {
        let inner = self.inner.lock().unwrap();
        let mut images = inner.start.clone();
        for op in &inner.ops[..at] {
            apply(&mut images, op);
        }
        images
    }

    /// The disk after a power cut just before operation `at`: of what was not synced any part is there, a write also in
    /// part of its sectors. Growth of a file is always kept.
    pub(super) fn cut_at(&self, at: usize, random: &mut ChaCha20Rng) -> Images {
        let inner = self.inner.lock().unwrap();
        let mut images = inner.start.clone();
        for (i, op) in inner.ops[..at].iter().enumerate() {
            let synced = inner.ops[i..at].iter().any(|later| later.store == op.store && later.kind == Kind::Sync);
            match &op.kind {
                Kind::Write { offset, data } if !synced => {
                    for (sector, bytes) in data.chunks(512).enumerate() {
                        if random.random_bool(0.5) {
                            let kind = Kind::Write { offset: offset + sector * 512, data: bytes.to_vec() };
                            apply(&mut images, &Op { store: op.store, kind });
                        }
                    }
                }
                _ => apply(&mut images, op),
            }
        }
        images
    }
}

fn apply(images: &mut Images, op: &Op) {
    let file = images.entry(op.store).or_default();
    match &op.kind {
        Kind::Write { offset, data } => {
            let end = offset + data.len();
            if file.len() < end {
                file.resize(end, 0);
            }
            file[*offset..end].copy_from_slice(data);
        }
        Kind::SetLen(length) => file.resize(*length, 0),
        Kind::Sync => {}
    }
}

impl Disk for MemDisk {
    fn open(&self, name: StoreName) -> io::Result<Box<dyn StorageBackend>> {
        self.inner.lock().unwrap().files.entry(name).or_default();
        Ok(Box::new(MemFile { disk: self.clone(), name }))
    }

    fn syncs(&self) -> bool {
        !self.inner.lock().unwrap().no_sync
    }

    /// Little, so that growth is among what is tried.
    fn room(&self) -> u64 {
        96 << 10
    }
}

#[derive(Debug)]
struct MemFile {
    disk: MemDisk,
    name: StoreName,
}

impl MemFile {
    fn run(&self, kind: Kind) -> io::Result<()> {
        let mut inner = self.disk.inner.lock().unwrap();
        if inner.fails == Some(self.name) {
            return Err(io::Error::other("no space left on device"));
        }
        let op = Op { store: self.name, kind };
        apply(&mut inner.files, &op);
        inner.ops.push(op);
        Ok(())
    }
}

impl StorageBackend for MemFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.inner.lock().unwrap().files[&self.name].len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let inner = self.disk.inner.lock().unwrap();
        let start = offset as usize;
        let bytes = inner.files[&self.name].get(start..start + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.run(Kind::SetLen(len as usize))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.run(Kind::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.run(Kind::Write { offset: offset as usize, data: data.to_vec() })
    }
}
