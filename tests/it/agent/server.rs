//! The agent as a process of its own, spoken to by the client.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use bytes::Bytes;
use midflush::agent_client::protocol::{ArmAction, CloneRequest, RestoreRequest};
use midflush::agent_client::{ByteStream, Client, Dial};
use midflush::timeline::{NodeEvent, Tier};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::{DEADLINE, arm, fault, request};

struct To(String);

#[async_trait::async_trait]
impl Dial for To {
    async fn dial(&self) -> std::io::Result<Box<dyn ByteStream>> {
        Ok(Box::new(tokio::net::TcpStream::connect(&self.0).await?))
    }
}

async fn agent(home: &Path) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_midflush"))
        .args(["agent", "--listen", "127.0.0.1:0", "--run", "r", "--node", "n", "--home"])
        .arg(home)
        .env("MIDFLUSH_TOKEN", "secret")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    timeout(DEADLINE, output.read_line(&mut line)).await.unwrap().unwrap();
    let address = line.split_whitespace().nth(4).unwrap().trim_end_matches(',').to_owned();
    (child, address)
}

fn client(address: &str) -> Client {
    Client::new(Arc::new(To(address.to_owned())), "secret")
}

fn archive(files: &[(&str, &[u8])]) -> Bytes {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        builder.append_data(&mut header, name, *bytes).unwrap();
    }
    builder.into_inner().unwrap().into()
}

#[tokio::test]
async fn the_client_and_the_agent_understand_each_other() {
    let home = tempfile::tempdir().unwrap();
    let (mut child, address) = agent(home.path()).await;
    let client = client(&address);
    let hello = client.hello().await.unwrap();
    assert_eq!((hello.version.as_str(), hello.interception.refused), (env!("CARGO_PKG_VERSION"), None));
    let stranger = Client::new(Arc::new(To(address.clone())), "guess");
    assert_eq!(stranger.hello().await.unwrap_err().refused_with(), Some(401));

    client.put_files(archive(&[("config/a.toml", b"a"), ("data/x", b"old")])).await.unwrap();
    let clone = CloneRequest { from: home.path().join("data").to_string_lossy().into_owned(), to: "saved".into() };
    client.clone_from(&clone).await.unwrap();
    assert_eq!(client.clone_from(&clone).await.unwrap_err().refused_with(), Some(409));
    client.put_files(archive(&[("data/x", b"new")])).await.unwrap();
    client.restore(&RestoreRequest { from: "saved".into(), to: "data".into() }).await.unwrap();
    let exported = client.export(&["data".to_owned(), "missing".to_owned()]).await.unwrap();
    let out = tempfile::tempdir().unwrap();
    tar::Archive::new(exported.as_ref()).unpack(out.path()).unwrap();
    assert_eq!(std::fs::read(out.path().join("data/x")).unwrap(), b"old");
    assert_eq!(client.export(&["../x".to_owned()]).await.unwrap_err().refused_with(), Some(400));

    let mut request = request("chain", Tier::Record);
    request.rpc = Some(address.clone());
    request.arms = vec![arm("{ height: 3, store: state.db, sync: 2, phase: after }", ArmAction::Kill)];
    let mut events = client.events(0).await.unwrap();
    let started = client.start(&request).await.unwrap();
    assert_eq!(started.start, 1);
    // Anything that speaks HTTP will do as the node's RPC: here it is the agent, which refuses, as the node's own answer.
    assert_eq!(client.rpc("/v1/hello").await.unwrap().status, 401);
    let mut landed = None;
    loop {
        match timeout(DEADLINE, events.next()).await.unwrap().unwrap().unwrap().event {
            NodeEvent::Landed { landed: at, .. } => landed = Some(at),
            NodeEvent::Exited { .. } => break,
            _ => {}
        }
    }
    assert_eq!(landed.unwrap().height, 3);
    assert!(client.log(1).await.unwrap().windows(9).any(|window| window == b"handshake"));
    assert_eq!(client.log(2).await.unwrap_err().refused_with(), Some(404));
    assert_eq!(client.disarm(&fault("aimed")).await.unwrap_err().refused_with(), Some(404));
    rustix::process::kill_process(pid(&child), rustix::process::Signal::TERM).unwrap();
    assert!(timeout(DEADLINE, child.wait()).await.unwrap().unwrap().success());
}

#[tokio::test]
async fn the_node_dies_with_its_agent_whatever_way_that_ends() {
    for signal in [rustix::process::Signal::KILL, rustix::process::Signal::TERM] {
        let home = tempfile::tempdir().unwrap();
        let (mut child, address) = agent(home.path()).await;
        let client = client(&address);
        let node = client.start(&request("sleep", Tier::Record)).await.unwrap().pid;
        let alive = || {
            let stat = std::fs::read_to_string(format!("/proc/{node}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
        };
        assert!(alive());
        rustix::process::kill_process(pid(&child), signal).unwrap();
        timeout(DEADLINE, child.wait()).await.unwrap().unwrap();
        let gone = async {
            while alive() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        timeout(DEADLINE, gone).await.expect("the node outlived its agent");
    }
}

fn pid(child: &Child) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap()
}
