//! Logs in by SASL, writes a record and reads it again:
//!
//!     login BOOTSTRAP MECHANISM USER TOPIC [CA-FILE [OWN-FILE]]
//!
//! The password, or the bearer token of OAUTHBEARER, is on standard input. With a file of a CA it speaks TLS, with a file
//! of its own it has a certificate; the mechanism TLS is no login. It prints the value that it has read.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::{BufReader, Read};
use std::sync::Arc;
use std::time::Duration;

use rskafka::client::partition::{Compression, UnknownTopicHandling};
use rskafka::client::{ClientBuilder, Credentials, OauthBearerCredentials, OauthCallback, SaslConfig};
use rskafka::record::Record;

const PATIENCE: Duration = Duration::from_secs(30);
const MAX_BYTES: i32 = 1 << 20;

type Value = Result<Vec<u8>, Box<dyn Error>>;

struct Login {
    bootstrap: String,
    mechanism: String,
    user: String,
    topic: String,
    password: String,
    authority: Option<String>,
    own: Option<String>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let mut word = || words.next().ok_or("too few arguments");
    let (bootstrap, mechanism, user, topic) = (word()?, word()?, word()?, word()?);
    let mut password = String::new();
    std::io::stdin().read_to_string(&mut password)?;
    let password = password.trim().to_string();
    let login = Login { bootstrap, mechanism, user, topic, password, authority: words.next(), own: words.next() };
    let value = tokio::time::timeout(PATIENCE, by_rskafka(&login)).await??;
    println!("{}", String::from_utf8(value)?);
    Ok(())
}

async fn by_rskafka(login: &Login) -> Value {
    let mut builder = ClientBuilder::new(vec![login.bootstrap.clone()]);
    let credentials = Credentials::new(login.user.clone(), login.password.clone());
    match login.mechanism.as_str() {
        "PLAIN" => builder = builder.sasl_config(SaslConfig::Plain(credentials)),
        "SCRAM-SHA-256" => builder = builder.sasl_config(SaslConfig::ScramSha256(credentials)),
        "SCRAM-SHA-512" => builder = builder.sasl_config(SaslConfig::ScramSha512(credentials)),
        "OAUTHBEARER" => {
            let token = login.password.clone();
            let callback: OauthCallback = Arc::new(move || {
                let token = token.clone();
                Box::pin(async move { Ok(token) })
            });
            let bearer = OauthBearerCredentials { callback, authz_id: None, bearer_kvs: vec![] };
            builder = builder.sasl_config(SaslConfig::Oauthbearer(bearer));
        }
        _ => (),
    }
    if let Some(authority) = &login.authority {
        builder = builder.tls_config(Arc::new(tls(authority, login.own.as_deref())?));
    }
    let client = builder.build().await?;
    client.controller_client()?.create_topic(login.topic.clone(), 1, 1, 10_000).await?;
    let partition = client.partition_client(login.topic.clone(), 0, UnknownTopicHandling::Retry).await?;
    let record = Record {
        key: None,
        value: Some(b"value".to_vec()),
        headers: BTreeMap::new(),
        timestamp: chrono::Utc::now(),
    };
    let offsets = partition.produce(vec![record], Compression::NoCompression).await?;
    let (records, _) = partition.fetch_records(offsets[0], 1..MAX_BYTES, 1_000).await?;
    Ok(records[0].record.value.clone().unwrap_or_default())
}

fn tls(authority: &str, own: Option<&str>) -> Result<rustls::ClientConfig, Box<dyn Error>> {
    let mut roots = rustls::RootCertStore::empty();
    for each in rustls_pemfile::certs(&mut BufReader::new(File::open(authority)?)) {
        roots.add(each?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let Some(own) = own else { return Ok(builder.with_no_client_auth()) };
    let chain = rustls_pemfile::certs(&mut BufReader::new(File::open(own)?)).collect::<Result<Vec<_>, _>>()?;
    let key = rustls_pemfile::private_key(&mut BufReader::new(File::open(own)?))?.ok_or("no private key")?;
    Ok(builder.with_client_auth_cert(chain, key)?)
}
