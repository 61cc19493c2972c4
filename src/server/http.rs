//! Routes, and the server that answers them on threads of its own.

use std::fmt;
use std::future::IntoFuture as _;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware;
use axum::response::{Html, IntoResponse};
use axum::routing::{get, post};
use axum::{Extension, Router};
use tokio::sync::watch;

use super::body::Limit;
use super::connections::Connections;
use super::problem::ServiceError;
use super::service::Service;
use super::{access, control, dump, load, metrics, peers, queries, reports};

const BODY_BYTES_MAX: usize = 64 << 10;
/// How long requests may take to end once the server stops.
const GRACE: Duration = Duration::from_secs(10);

/// The routes as an axum application, for one that serves them itself: behind TLS or authentication, or nested beside others. The
/// page at `/` asks for the other routes beside itself. Needs a Tokio runtime with blocking threads; axum's version is part of it.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use kvtap::server::{Service, ServiceOptions, router};
///
/// let service = Arc::new(Service::new(ServiceOptions::default())?);
/// let app = axum::Router::<()>::new().nest("/kv/", router(Arc::clone(&service)));
/// # Ok::<(), kvtap::server::ServiceError>(())
/// ```
pub fn router(service: Arc<Service>) -> Router {
    let queries = Router::new()
        .route("/query", post(queries::query))
        .route("/query_by_hash", post(queries::query_by_hash))
        .layer(Extension(Limit(service.options.query_body_bytes)));
    let routes = Router::new()
        .route("/", get(page))
        .route("/page.css", get(style))
        .route("/page.js", get(script))
        .route("/register", post(control::register))
        .route("/unregister", post(control::unregister))
        .route("/workers", get(control::workers))
        .route("/health", get(control::health))
        .route("/ready", get(control::ready))
        .route("/sources", get(reports::sources))
        .route("/explain", get(reports::explain))
        .route("/dump", get(dump::dump_all))
        .route("/register_peer", post(peers::register))
        .route("/deregister_peer", post(peers::deregister))
        .route("/peers", get(peers::list))
        .route("/metrics", get(metrics::metrics))
        .layer(Extension(Limit(BODY_BYTES_MAX)))
        .merge(queries)
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .with_state(service);
    if access::is_wanted() { routes.layer(middleware::from_fn(access::tell)) } else { routes }
}

/// What is going on, for people. Whatever a publisher or a query says, the page loads nothing but its two files, runs nothing
/// that stands in itself, and speaks to us alone.
async fn page() -> impl IntoResponse {
    const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src data:; connect-src 'self'; \
                          base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    let headers = [(header::CONTENT_SECURITY_POLICY, POLICY), FRESH];
    (headers, Html(include_str!("assets/index.html")))
}

async fn style() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8"), FRESH], include_str!("assets/page.css"))
}

async fn script() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8"), FRESH], include_str!("assets/page.js"))
}

/// After an upgrade a browser must not go on with the files of before.
const FRESH: (header::HeaderName, &str) = (header::CACHE_CONTROL, "no-cache");

async fn no_route(uri: Uri) -> ServiceError {
    ServiceError::not_found(format_args!("there is no {}", uri.path()))
}

async fn wrong_method(method: Method, uri: Uri) -> ServiceError {
    let sentence = format!("{} does not take {method}", uri.path());
    ServiceError::refused(StatusCode::METHOD_NOT_ALLOWED, sentence)
}

/// A running HTTP server. Dropping it stops it as [`Server::stop`] does.
pub struct Server {
    service: Arc<Service>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens from now on, and loads what the service's peers hold.
    ///
    /// # Errors
    /// If the address is taken or is none, or the threads cannot be started.
    pub fn start(service: Arc<Service>, listen: impl ToSocketAddrs) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("kvtap-http")
            .enable_io()
            .enable_time()
            .build()?;
        let (stop, stopped) = watch::channel(false);
        let listener = {
            let _context = runtime.enter();
            let listener = tokio::net::TcpListener::from_std(listener)?;
            Connections::new(listener, service.options.connections)
        };
        if !service.options.peers.is_empty() {
            load::start(&service, service.options.peers.clone()).map_err(io::Error::other)?;
        }
        let routes = router(Arc::clone(&service));
        let thread = std::thread::Builder::new().name("kvtap-http".to_owned()).spawn(move || {
            runtime.block_on(serve(listener, routes, stopped));
            runtime.shutdown_timeout(Duration::from_secs(1));
        })?;
        Ok(Self { service, address, stop, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections, and returns when the requests there are have their answers, or ten seconds are over.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.service.begin_stop();
        // Without a receiver it has ended already.
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            // A panic there has been told on stderr; there is nothing to add.
            drop(thread.join());
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

async fn serve(listener: Connections, routes: Router, stopped: watch::Receiver<bool>) {
    let wait = |mut stopped: watch::Receiver<bool>| async move {
        // An error means that nobody is left who could stop it.
        let _ = stopped.wait_for(|&stopped| stopped).await;
    };
    let served = axum::serve(listener, routes).with_graceful_shutdown(wait(stopped.clone()));
    let late = async {
        wait(stopped).await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        // Errors of single connections never end it.
        _ = served.into_future() => {}
        () = late => log::warn!("requests are cut off that have not ended in {} s", GRACE.as_secs()),
    }
}
