//! Counts what a connection has sent of messages that are not complete yet, while it is being read.
//!
//! A WebSocket library keeps a frame until its last byte is there, so a few thousand connections could each hold most of
//! a large one. Here every byte is counted where it leaves the socket: the first [`FREE_BYTES`] of a connection are
//! covered by the bound on connections, all others take room from `runtime.frameBytesInFlight`. Where there is none, the
//! read fails: waiting for room would let connections wait for each other for ever.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What each connection may hold without asking.
pub(crate) const FREE_BYTES: usize = 16 * 1024;

/// Bytes of a control frame's head: masked, with a payload of at most 125 bytes.
const CONTROL_HEAD_BYTES: usize = 6;

/// One connection's count. It counts nothing before [`begin`](Self::begin).
#[derive(Debug, Default)]
pub(crate) struct Meter {
    room: OnceLock<Arc<Semaphore>>,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    permit: Option<OwnedSemaphorePermit>,
    full: bool,
}

// === impl Meter ===

impl Meter {
    /// From now on what is read is counted, and takes its room from `room`.
    pub(crate) fn begin(&self, room: &Arc<Semaphore>) {
        // A connection is upgraded once.
        let _ = self.room.set(Arc::clone(room));
    }

    /// Whether a read failed for want of room.
    pub(crate) fn is_full(&self) -> bool {
        self.held().full
    }

    /// A message is complete and has been dealt with.
    pub(crate) fn message_done(&self) {
        *self.held() = Held::default();
    }

    /// A control frame is complete; it may have come in the middle of a message.
    pub(crate) fn control_done(&self, payload_bytes: usize) {
        let mut held = self.held();
        held.bytes = held.bytes.saturating_sub(payload_bytes + CONTROL_HEAD_BYTES);
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, bytes: usize) -> io::Result<()> {
        let Some(room) = self.room.get() else { return Ok(()) };
        let mut held = self.held();
        held.bytes = held.bytes.saturating_add(bytes);
        let has = held.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let lacks = held.bytes.saturating_sub(FREE_BYTES).saturating_sub(has);
        if lacks == 0 {
            return Ok(());
        }
        let taken = u32::try_from(lacks).ok().and_then(|lacks| Arc::clone(room).try_acquire_many_owned(lacks).ok());
        match (taken, &mut held.permit) {
            (Some(more), Some(permit)) => permit.merge(more),
            (Some(first), none) => *none = Some(first),
            (None, permit) => {
                // The connection ends now; others need not end with it.
                *permit = None;
                held.full = true;
                return Err(io::Error::new(io::ErrorKind::OutOfMemory, "no room for more bytes of incomplete frames"));
            }
        }
        Ok(())
    }
}

/// A socket that is read through the meter of `M`.
pub(crate) struct Metered<M> {
    socket: TcpStream,
    meter: Arc<M>,
}

impl<M: AsRef<Meter>> Metered<M> {
    pub(crate) fn new(socket: TcpStream, meter: Arc<M>) -> Self {
        Self { socket, meter }
    }
}

impl<M: AsRef<Meter>> AsyncRead for Metered<M> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match Pin::new(&mut self.socket).poll_read(cx, buf) {
            Poll::Ready(Ok(())) => Poll::Ready(M::as_ref(&self.meter).read(buf.filled().len() - before)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<M> AsyncWrite for Metered<M> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_free_part_takes_room_and_gives_it_back() {
        let room = Arc::new(Semaphore::new(1000));
        let meter = Meter::default();
        assert!(meter.read(1 << 30).is_ok(), "nothing is counted before the upgrade");
        meter.begin(&room);
        meter.read(FREE_BYTES).unwrap();
        assert_eq!(room.available_permits(), 1000);
        meter.read(400).unwrap();
        meter.read(300).unwrap();
        assert_eq!(room.available_permits(), 300);
        meter.message_done();
        assert_eq!(room.available_permits(), 1000);
        let other = Meter::default();
        other.begin(&room);
        other.read(FREE_BYTES + 900).unwrap();
        meter.read(FREE_BYTES).unwrap();
        assert!(meter.read(101).is_err() && meter.is_full());
        drop(other);
        assert_eq!(room.available_permits(), 1000);
    }

    #[test]
    fn control_frames_neither_add_up_nor_hide_a_message() {
        let room = Arc::new(Semaphore::new(100));
        let meter = Meter::default();
        meter.begin(&room);
        for _ in 0..100_000 {
            meter.read(20 + CONTROL_HEAD_BYTES).unwrap();
            meter.control_done(20);
        }
        assert_eq!(room.available_permits(), 100);
        // Fragments of one message, with a ping behind each.
        let fragments = (0..).take_while(|_| {
            let read = meter.read(1000 + 10 + CONTROL_HEAD_BYTES).is_ok();
            meter.control_done(10);
            read
        });
        assert!(fragments.count() <= (FREE_BYTES + 100) / 1000);
    }
}
