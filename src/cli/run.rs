//! `colibri run`: runs any program in the sandbox, for people to try it.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use crate::app::own_places;
use crate::config::{Loaded, inherited_environment};
use crate::domain::end::End;
use crate::sandbox::policy::{Files, Hosts, Limits, Network};
use crate::sandbox::{self, Layer, Level, Policy, Spec};

use super::Session;
use super::fault::{Exit, Fault};
use super::out;
use super::serve::block_on;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri run -- npx -y @modelcontextprotocol/server-everything
  colibri run --sandbox strict --allow-read ~/notes -- ./server
  colibri run --memory-mb 256 --network none -- python3 server.py
  colibri run --network api.example.com -- python3 client.py

The exit code is the program's own, or 128 and the signal that ended it. Why colibri ended it is said on stderr.";

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// How much of the sandbox must hold
    #[arg(long, value_enum, default_value = "standard")]
    sandbox: Word,
    /// Resident memory of all its processes together [default: 1024]
    #[arg(long, value_name = "MB")]
    memory_mb: Option<u32>,
    /// Processes and threads [default: 512]
    #[arg(long, value_name = "COUNT")]
    processes: Option<u32>,
    /// Processor time of all its processes together
    #[arg(long, value_name = "SECONDS")]
    cpu_seconds: Option<u32>,
    /// How long it may run
    #[arg(long, value_name = "SECONDS")]
    wall_seconds: Option<u32>,
    /// The longest file it may write [default: 1024]
    #[arg(long, value_name = "MB")]
    file_size_mb: Option<u32>,
    /// Open files, per process [default: 1024]
    #[arg(long, value_name = "COUNT")]
    open_files: Option<u32>,
    /// Let it read this, and of the rest the system's programs and libraries alone
    #[arg(long, value_name = "PATH")]
    allow_read: Vec<PathBuf>,
    /// Let it write this, and of the rest temporary files alone
    #[arg(long, value_name = "PATH")]
    allow_write: Vec<PathBuf>,
    /// Hide this from it
    #[arg(long, value_name = "PATH")]
    deny_read: Vec<PathBuf>,
    /// Keep it from writing this
    #[arg(long, value_name = "PATH")]
    deny_write: Vec<PathBuf>,
    /// `none`, `full`, or a host that it may reach through a proxy (HOST, HOST:PORT, *.DOMAIN); may be repeated
    /// [default: full; none in strict]
    #[arg(long, value_name = "HOST")]
    network: Vec<String>,
    /// A layer that this machine may lack
    #[arg(long, value_name = "LAYER", value_parser = layer)]
    allow_degraded: Vec<Layer>,
    /// Act as if this machine lacked this layer
    #[arg(long, value_name = "LAYER", value_parser = layer, hide = true)]
    pretend_missing: Vec<Layer>,
    /// Also give it this variable
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// The program and its arguments, after `--`
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Word {
    Standard,
    Strict,
    Off,
}

fn layer(name: &str) -> Result<Layer, String> {
    let known = || Layer::ALL.map(Layer::name).join(", ");
    Layer::named(name).ok_or_else(|| format!("the layers are {}", known()))
}

pub(super) fn run(session: &Session, arguments: &Arguments) -> Result<(), Fault> {
    let (loaded, _) = session.load()?;
    let spec = spec(arguments)?;
    let policy = policy(arguments, &loaded)?;
    let (end, status) = block_on(async {
        let life = sandbox::run_under(&spec, &policy)?;
        if let Some(lacking) = life.started().await.filter(|lacking| !lacking.is_empty()) {
            let names: Vec<&str> = lacking.into_iter().map(Layer::name).collect();
            let _ = out::talk(&format!("colibri: running without {}, as allowed", names.join(", ")));
        }
        let mut ended = std::pin::pin!(life.ended());
        let mut tells = true;
        loop {
            tokio::select! {
                _ = &mut ended => break,
                refused = life.next_refused(), if tells => match refused {
                    Some(refused) => drop(out::talk(&refused)),
                    None => tells = false,
                },
            }
        }
        Ok::<_, std::io::Error>((life.how_it_ended().await, life.ended().await))
    })?
    .map_err(|error| {
        let program = out::visible(&spec.program.to_string_lossy());
        Fault::new(Exit::Unreachable, format!("cannot start {program}: {error}"))
    })?;
    match end {
        End::Exited { code: 0 } => Ok(()),
        End::Exited { code } => Err(Fault::of_program(u8::try_from(code).unwrap_or(u8::MAX), "")),
        end if !end.ran() => Err(Fault::new(Exit::Unreachable, end.to_string())),
        end => {
            let signal = status.signal().and_then(|signal| u8::try_from(signal).ok()).unwrap_or(9);
            Err(Fault::of_program(128 + signal, end.to_string()))
        }
    }
}

fn spec(arguments: &Arguments) -> Result<Spec, Fault> {
    let mut environment = inherited_environment();
    for pair in &arguments.env {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(Fault::new(Exit::Usage, "--env takes NAME=VALUE"));
        };
        environment.push((name.into(), value.into()));
    }
    let (program, rest) = arguments.command.split_first().expect("clap asks for at least one");
    Ok(Spec { program: program.clone(), arguments: rest.to_vec(), environment, directory: None })
}

fn policy(arguments: &Arguments, loaded: &Loaded) -> Result<Policy, Fault> {
    let absolute = |paths: &[PathBuf]| -> std::io::Result<Vec<OsString>> {
        paths.iter().map(|path| Ok(std::path::absolute(path)?.into_os_string())).collect()
    };
    let mut hidden = absolute(&arguments.deny_read)?;
    let own = own_places(loaded);
    hidden.extend(own.hidden);
    let mut read_only = absolute(&arguments.deny_write)?;
    read_only.extend(own.read_only);
    let files = Files {
        hidden,
        read_only,
        allow_read: absolute(&arguments.allow_read)?,
        allow_write: absolute(&arguments.allow_write)?,
    };
    let level = match arguments.sandbox {
        Word::Standard => Level::Standard,
        Word::Strict => Level::Strict,
        Word::Off => return Ok(Policy::off()),
    };
    let network = network(&arguments.network).map_err(|why| Fault::new(Exit::Usage, why))?;
    Ok(Policy {
        level,
        limits: limits(arguments),
        files,
        network,
        allow_degraded: arguments.allow_degraded.iter().copied().collect(),
        pretend_missing: arguments.pretend_missing.iter().copied().collect(),
    })
}

fn network(words: &[String]) -> Result<Option<Network>, String> {
    match words {
        [] => Ok(None),
        [word] if word == "none" => Ok(Some(Network::None)),
        [word] if word == "full" => Ok(Some(Network::Full)),
        hosts => Hosts::allowing(hosts).map(|hosts| Some(Network::Hosts(hosts))),
    }
}

fn limits(arguments: &Arguments) -> Limits {
    let usual = Limits::default();
    let megabytes = |count: Option<u32>| count.map(|count| u64::from(count) << 20);
    let seconds = |count: Option<u32>| count.map(|count| Duration::from_secs(count.into()));
    Limits {
        memory_bytes: megabytes(arguments.memory_mb).or(usual.memory_bytes),
        processes: arguments.processes.or(usual.processes),
        cpu: seconds(arguments.cpu_seconds),
        wall: seconds(arguments.wall_seconds),
        file_bytes: megabytes(arguments.file_size_mb).or(usual.file_bytes),
        open_files: arguments.open_files.or(usual.open_files),
        // Its output is not read here.
        output_bytes: None,
    }
}
