//! A bounded queue from the asynchronous network side to one plain thread, which waits with a deadline. Items have a
//! weight, so that the bound can be one on memory.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Instant;

use tokio::sync::Semaphore;

/// Makes a queue that holds at most `capacity` of weight; a heavier item waits for an empty queue.
pub fn inbox<T>(capacity: u32) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::channel();
    let room = Arc::new(Semaphore::new(capacity as usize));
    (Sender { sender, room: room.clone(), capacity }, Receiver { receiver, room })
}

/// The sending side.
#[derive(Debug)]
pub struct Sender<T> {
    sender: mpsc::Sender<(T, u32)>,
    room: Arc<Semaphore>,
    capacity: u32,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), room: self.room.clone(), capacity: self.capacity }
    }
}

impl<T> Sender<T> {
    /// Waits for room and sends; false when the receiver is gone.
    pub async fn send(&self, item: T, weight: u32) -> bool {
        let weight = weight.clamp(1, self.capacity);
        let Ok(permit) = self.room.acquire_many(weight).await else { return false };
        permit.forget();
        self.sender.send((item, weight)).is_ok()
    }

    /// Sends at once, beyond the capacity: for the few items of the node's own threads.
    pub fn send_now(&self, item: T) -> bool {
        self.sender.send((item, 0)).is_ok()
    }

    /// Sends if there is room now.
    pub fn try_send(&self, item: T, weight: u32) -> bool {
        let weight = weight.clamp(1, self.capacity);
        let Ok(permit) = self.room.try_acquire_many(weight) else { return false };
        permit.forget();
        self.sender.send((item, weight)).is_ok()
    }
}

/// The receiving side.
#[derive(Debug)]
pub struct Receiver<T> {
    receiver: mpsc::Receiver<(T, u32)>,
    room: Arc<Semaphore>,
}

impl<T> Receiver<T> {
    /// Waits until `deadline` for the next item. Nothing comes when the time is over or all senders are gone.
    pub fn recv_until(&self, deadline: Instant) -> Option<T> {
        let wait = deadline.saturating_duration_since(Instant::now());
        let received = self.receiver.recv_timeout(wait).ok();
        self.release(received)
    }

    /// The next item if there is one already.
    pub fn try_recv(&self) -> Option<T> {
        let received = self.receiver.try_recv().ok();
        self.release(received)
    }

    fn release(&self, received: Option<(T, u32)>) -> Option<T> {
        let (item, weight) = received?;
        self.room.add_permits(weight as usize);
        Some(item)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.room.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_no_more_than_its_capacity() {
        let (sender, receiver) = inbox(10);
        assert!(sender.try_send('a', 6) && sender.try_send('b', 4));
        assert!(!sender.try_send('c', 1));
        assert_eq!(receiver.try_recv(), Some('a'));
        assert!(sender.try_send('d', 6));
        assert_eq!(receiver.recv_until(Instant::now()), Some('b'));
        assert_eq!(receiver.try_recv(), Some('d'));
        assert_eq!(receiver.recv_until(Instant::now()), None);
        assert!(sender.try_send('e', 1000), "too heavy is not never");
        drop(receiver);
        assert!(!sender.try_send('f', 1));
    }
}
