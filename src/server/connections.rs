//! The listening socket with bounds: so many connections at a time, none of which may say nothing for long, or ask for as long as
//! it likes. Without them a client could keep every file descriptor of the process.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// A connection over which so long no byte goes either way is closed. Longer than the pools of HTTP clients keep them.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// From the first byte of a request to the first of its answer: else one byte now and then would keep a connection for ever.
const REQUEST_MAX: Duration = Duration::from_secs(120);

/// Accepts a connection when one of so many is free; the others wait in the kernel's queue.
pub(super) struct Connections {
    listener: TcpListener,
    free: Arc<Semaphore>,
    times: Times,
}

/// How long a connection may be silent, and a request go without an answer.
#[derive(Clone, Copy)]
struct Times {
    silence_max: Duration,
    request_max: Duration,
}

const TIMES: Times = Times { silence_max: SILENCE_MAX, request_max: REQUEST_MAX };

/// An accepted connection.
pub(super) struct Connection {
    stream: TcpStream,
    /// Ends what is silent, or asks for too long.
    end: Pin<Box<Sleep>>,
    times: Times,
    /// Bytes went since `end` was set.
    moved: bool,
    /// When the request began that has no answer yet.
    asked: Option<Instant>,
    _place: OwnedSemaphorePermit,
}

impl Connections {
    pub(super) fn new(listener: TcpListener, connections: usize) -> Self {
        let free = Arc::new(Semaphore::new(connections));
        Self { listener, free, times: TIMES }
    }
}

impl Listener for Connections {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // Nobody closes the semaphore; if somebody did, there would be nothing to accept.
        let Ok(place) = Arc::clone(&self.free).acquire_owned().await else {
            return std::future::pending().await;
        };
        let (stream, address) = Listener::accept(&mut self.listener).await;
        // Answers are one write each; without this the last part of a long one would wait.
        let _ = stream.set_nodelay(true);
        let (times, end) = (self.times, Box::pin(sleep(self.times.silence_max)));
        let connection = Connection { stream, end, times, moved: false, asked: None, _place: place };
        (connection, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Connection {
    /// Passes on what the stream says, unless it has said nothing, or gone on asking, for too long.
    fn heard<T>(&mut self, context: &mut Context<'_>, said: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if said.is_ready() {
            self.moved = true;
            return said;
        }
        if std::mem::take(&mut self.moved) {
            let silent = Instant::now() + self.times.silence_max;
            let asked = self.asked.map(|asked| asked + self.times.request_max);
            self.end.as_mut().reset(asked.map_or(silent, |asked| asked.min(silent)));
        }
        ready!(self.end.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// The same of an answer, with which the request is over.
    fn answered(
        &mut self,
        context: &mut Context<'_>,
        said: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if said.is_ready() {
            self.asked = None;
        }
        self.heard(context, said)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let said = Pin::new(&mut self.stream).poll_read(context, into);
        if into.filled().len() > before {
            self.asked.get_or_insert_with(Instant::now);
        }
        self.heard(context, said)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let said = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.answered(context, said)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let said = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.answered(context, said)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpStream as Client;

    use super::*;

    /// A listener of so many connections.
    fn listen(connections: usize, times: Times) -> (Connections, SocketAddr) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        (Connections { times, ..Connections::new(listener, connections) }, address)
    }

    #[tokio::test]
    async fn a_connection_too_many_waits_for_another_to_end() {
        let (mut listener, address) = listen(2, TIMES);
        let _clients = [(); 3].map(|()| Client::connect(address).unwrap());
        let (first, _second) = (listener.accept().await, listener.accept().await);
        let mut waiting = Box::pin(listener.accept());
        std::future::poll_fn(|context| {
            assert!(waiting.as_mut().poll(context).is_pending(), "two are there already");
            Poll::Ready(())
        })
        .await;
        drop(first);
        waiting.await;
    }

    /// Reads what came.
    async fn read(connection: &mut Connection) -> io::Result<usize> {
        let mut bytes = [0; 8];
        let mut into = ReadBuf::new(&mut bytes);
        let read = std::future::poll_fn(|context| Pin::new(&mut *connection).poll_read(context, &mut into));
        read.await.map(|()| into.filled().len())
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_is_cut_off_and_who_speaks_is_not() {
        let (mut listener, address) = listen(2, Times { silence_max: Duration::from_millis(300), ..TIMES });
        let mut client = Client::connect(address).unwrap();
        let (mut connection, _) = listener.accept().await;
        for _ in 0..4 {
            sleep(Duration::from_millis(100)).await;
            client.write_all(b"x").unwrap();
            assert_eq!(read(&mut connection).await.unwrap(), 1);
        }
        assert_eq!(read(&mut connection).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_for_ever_is_cut_off_and_who_is_answered_is_not() {
        let (mut listener, address) = listen(2, Times { request_max: Duration::from_millis(300), ..TIMES });
        let mut client = Client::connect(address).unwrap();
        let (mut connection, _) = listener.accept().await;
        for _ in 0..4 {
            client.write_all(b"x").unwrap();
            assert_eq!(read(&mut connection).await.unwrap(), 1);
            sleep(Duration::from_millis(100)).await;
            let answer = std::future::poll_fn(|context| Pin::new(&mut connection).poll_write(context, b"y"));
            assert_eq!(answer.await.unwrap(), 1);
        }
        let end = loop {
            client.write_all(b"x").unwrap();
            match read(&mut connection).await {
                Ok(_) => sleep(Duration::from_millis(100)).await,
                Err(error) => break error,
            }
        };
        assert_eq!(end.kind(), io::ErrorKind::TimedOut);
    }
}
