//! Log lines on standard error: `GREENROOM_LOG` sets the filter (as `RUST_LOG` does elsewhere), default `warn`.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Installs the subscriber; a second call changes nothing.
pub fn init(quiet_default: &str) {
    let filter = EnvFilter::try_from_env("GREENROOM_LOG").unwrap_or_else(|_| EnvFilter::new(quiet_default));
    // Fails only when a subscriber is there already, which then is the one to use.
    let colored = std::io::stderr().is_terminal();
    let _ =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colored).with_writer(std::io::stderr).try_init();
}
