//! `pilothouse certificate`: the certificate of a workload in files, for programs that no agent stands beside.
//!
//! A new key and certificate replace the ones before when they are whole; a failure leaves those that there are. The proof is the
//! token while it lasts, then the certificate itself, so that a join token of an hour is enough for a program that stays.

use std::{
    fs,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, SystemTime},
};

use anyhow::{Context, bail};
use clap::Args;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::{
    Status,
    client::Grpc,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use tonic_prost::ProstCodec;

use super::{EXIT_USAGE, complain, server::Server};
use crate::{
    identity::{CertificateFolder, CertificateRequest, WorkloadFiles, join_token},
    proto::{
        go_duration,
        istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse},
    },
    runtime::{Shutdown, listen_for_signals},
};

/// The method that signs requests.
const METHOD: &str = "/istio.v1.auth.IstioCertificateService/CreateCertificate";
/// Time limit of an attempt.
const PATIENCE: Duration = Duration::from_secs(30);
/// The first pause after a failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The shortest pause after a success.
const LEAST_PAUSE: Duration = Duration::from_secs(1);
/// The clock is looked at so often: it goes on while the machine sleeps.
const LOOK: Duration = Duration::from_secs(30);

/// Arguments of `certificate`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLE)]
pub struct CertificateArgs {
    /// Address of the server's secure listener: HOST:PORT, or unix:PATH for a Unix socket of this machine.
    #[arg(long, env = "PILOTHOUSE_XDS_ADDRESS", value_name = "ADDRESS")]
    pub xds_address: String,
    /// Root certificates of the server.
    #[arg(long, env = "PILOTHOUSE_ROOT_CERT", value_name = "FILE")]
    pub root_cert: Option<PathBuf>,
    /// Name in the server's certificate.
    #[arg(long, env = "PILOTHOUSE_XDS_NAME", default_value = "istiod.istio-system.svc", value_name = "NAME")]
    pub xds_name: String,
    /// Token of the workload: a join token (`pilothouse token create`), or one of a service account. Read again for each attempt;
    /// once it has expired, the certificate that is there proves the workload.
    #[arg(long, env = "PILOTHOUSE_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Folder to write cert-chain.pem, key.pem and root-cert.pem to (OUTPUT_CERTS of Istio's agent).
    #[arg(long, env = "PILOTHOUSE_CERTS_DIR", value_name = "DIR")]
    pub certs_dir: PathBuf,
    /// Lifetime of the certificate [default: the server's].
    #[arg(long, env = "PILOTHOUSE_TTL", value_parser = lifetime, value_name = "DURATION")]
    pub ttl: Option<Duration>,
    /// Stay, and renew the certificate at 40 to 60 % of its life.
    #[arg(long, env = "PILOTHOUSE_WATCH")]
    pub watch: bool,
}

const EXAMPLE: &str = "Example:
  pilothouse certificate --xds-address control.example:15012 --root-cert root.pem --token-file token --certs-dir certs --watch";

fn lifetime(text: &str) -> Result<Duration, String> {
    let duration = go_duration(text).ok_or("a duration has the form 1h30m")?;
    if duration < Duration::from_secs(1) {
        Err("a certificate lasts at least a second".to_string())
    } else {
        Ok(duration)
    }
}

/// Writes the files once, or until SIGTERM or SIGINT.
///
/// # Errors
/// No certificate; with `--watch` that is told, and tried again.
pub fn run(args: CertificateArgs) -> anyhow::Result<ExitCode> {
    if let Err(reason) = check(&args) {
        eprintln!("pilothouse: {reason}");
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        if args.watch {
            watch(&args).await?;
        } else {
            tell(&args, &renew(&args).await?);
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn check(args: &CertificateArgs) -> Result<(), String> {
    match (Server::parse(&args.xds_address)?, &args.root_cert) {
        (Server::Tcp(..), None) => {
            Err("--root-cert is required: certificates are asked for over TLS alone".to_string())
        }
        (Server::Unix(_), Some(_)) => Err("--root-cert: there is no TLS on a Unix socket".to_string()),
        _ => Ok(()),
    }
}

/// Renews until the process is told to end.
async fn watch(args: &CertificateArgs) -> anyhow::Result<()> {
    let shutdown = Shutdown::default();
    listen_for_signals(&shutdown)?;
    let mut failures = 0;
    while !shutdown.has_begun() {
        let renewed = tokio::select! {
            renewed = renew(args) => renewed,
            () = shutdown.begun() => break,
        };
        let now = SystemTime::now();
        let next = match renewed {
            Ok(files) => {
                failures = 0;
                tell(args, &files);
                files.renew_at(now).max(now + LEAST_PAUSE)
            }
            Err(error) => {
                let pause = pause_after(failures);
                failures += 1;
                let left = CertificateFolder::of(&args.certs_dir).read(now).map_or_else(
                    || "there is none".to_string(),
                    |files| format!("the one that there is lasts for {} s", files.valid_for(now).as_secs()),
                );
                complain(&format!("no certificate, {left}; tried again in {} s: {error:#}", pause.as_secs()));
                now + pause
            }
        };
        tokio::select! {
            () = until(next) => {}
            () = shutdown.begun() => break,
        }
    }
    Ok(())
}

/// The pause after so many failures in a row before this one.
fn pause_after(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.min(16)).min(LONGEST_PAUSE)
}

/// Waits for a time of the clock.
async fn until(time: SystemTime) {
    while let Ok(left) = time.duration_since(SystemTime::now()) {
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LOOK)).await;
    }
}

fn tell(args: &CertificateArgs, files: &WorkloadFiles) {
    let identity = files.identity.as_deref().unwrap_or("an identity of another form");
    let seconds = files.valid_for(SystemTime::now()).as_secs();
    complain(&format!("certificate of {identity} in {}, for {seconds} s", args.certs_dir.display()));
}

/// A new key and certificate in place of those that there are.
async fn renew(args: &CertificateArgs) -> anyhow::Result<WorkloadFiles> {
    let folder = CertificateFolder::of(&args.certs_dir);
    let server = Server::parse(&args.xds_address).map_err(anyhow::Error::msg)?;
    let proof = proof(args, server, &folder, SystemTime::now())?;
    let request = CertificateRequest::new()?;
    let answer = tokio::time::timeout(PATIENCE, ask(args, server, &proof, request.text()))
        .await
        .with_context(|| format!("{} did not answer within {} s", args.xds_address, PATIENCE.as_secs()))??;
    let files = request.answered(&answer, SystemTime::now())?;
    folder.write(&files).with_context(|| format!("writing to {}", args.certs_dir.display()))?;
    Ok(files)
}

/// The proof of the workload's identity in an attempt.
enum Proof {
    Token(String),
    Certificate(Box<WorkloadFiles>),
    /// The user behind the Unix socket.
    User,
}

/// The token while it lasts, then the certificate that there is.
fn proof(
    args: &CertificateArgs,
    server: Server<'_>,
    folder: &CertificateFolder,
    now: SystemTime,
) -> anyhow::Result<Proof> {
    let mut expired = None;
    if let Some(path) = &args.token_file {
        let text = fs::read_to_string(path).with_context(|| format!("--token-file {}", path.display()))?;
        let token = text.trim().to_string();
        if join_token::expiry_of(&token).is_none_or(|end| end > now) {
            return Ok(Proof::Token(token));
        }
        expired = Some(path);
    }
    if matches!(server, Server::Unix(_)) {
        return match expired {
            Some(path) => bail!("the token in {} has expired", path.display()),
            None => Ok(Proof::User),
        };
    }
    match (folder.read(now), expired) {
        (Some(files), _) => Ok(Proof::Certificate(Box::new(files))),
        (None, Some(path)) => {
            bail!(
                "the token in {} has expired, and there is no certificate that could prove the workload",
                path.display()
            )
        }
        (None, None) => bail!("there is no certificate that could prove the workload: --token-file is required"),
    }
}

/// Sends the request to the server.
async fn ask(args: &CertificateArgs, server: Server<'_>, proof: &Proof, request: &str) -> anyhow::Result<Vec<String>> {
    let address = &args.xds_address;
    let channel = dial(args, server, proof).await?;
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.with_context(|| format!("connecting to {address}"))?;
    let validity_duration = args.ttl.map_or(0, |ttl| i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX));
    let message = IstioCertificateRequest { csr: request.to_string(), validity_duration, metadata: None };
    let mut request = tonic::Request::new(message);
    if let Proof::Token(token) = proof {
        let value = format!("Bearer {token}").parse().context("the token is not a text that a header can hold")?;
        request.metadata_mut().insert("authorization", value);
    }
    let codec = ProstCodec::<IstioCertificateRequest, IstioCertificateResponse>::default();
    let answer = grpc.unary(request, http::uri::PathAndQuery::from_static(METHOD), codec).await;
    Ok(answer.map_err(|status| refused(address, &status))?.into_inner().cert_chain)
}

fn refused(address: &str, status: &Status) -> anyhow::Error {
    anyhow::anyhow!("{address} refused: {:?}: {}", status.code(), status.message().escape_debug())
}

async fn dial(args: &CertificateArgs, server: Server<'_>, proof: &Proof) -> anyhow::Result<Channel> {
    let connected = match server {
        Server::Unix(path) => {
            let path = path.to_string();
            let connect = tower::service_fn(move |_| {
                let path = path.clone();
                async move { UnixStream::connect(path).await.map(TokioIo::new) }
            });
            Endpoint::from_static("http://localhost").connect_with_connector(connect).await
        }
        Server::Tcp(host, port) => {
            let roots = args.root_cert.as_deref().context("--root-cert is required")?;
            let roots = fs::read(roots).with_context(|| format!("--root-cert {}", roots.display()))?;
            let mut tls =
                ClientTlsConfig::new().ca_certificate(Certificate::from_pem(roots)).domain_name(args.xds_name.as_str());
            if let Proof::Certificate(own) = proof {
                tls = tls.identity(Identity::from_pem(&own.chain, &own.key));
            }
            let host = if host.contains(':') { format!("[{host}]") } else { host.to_string() };
            let endpoint = Endpoint::from_shared(format!("https://{host}:{port}"))?;
            endpoint.tls_config(tls)?.connect_timeout(PATIENCE).connect().await
        }
    };
    let connected = connected.with_context(|| format!("connecting to {}", args.xds_address));
    connected.map_err(|error| match format!("{error:#}").contains("InvalidContentType") {
        true => error.context("--xds-address: no TLS is spoken there; the server has it at --secure-grpc-addr"),
        false => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_after_failures_grow_to_a_limit() {
        let pauses: Vec<u64> = [0, 1, 2, 5, 6, 1000, u32::MAX].map(|n| pause_after(n).as_secs()).to_vec();
        assert_eq!(pauses, [1, 2, 4, 32, 60, 60, 60]);
    }

    #[tokio::test]
    async fn a_time_that_is_over_is_not_waited_for() {
        until(SystemTime::now() - Duration::from_secs(1)).await;
        until(SystemTime::now()).await;
    }
}
