//! Ports for programs that must be told one.

use std::net::{Ipv4Addr, TcpListener};

/// A loopback port that is free now. Somebody else may take it: ask right before it is needed, or bind port 0 where
/// the program can say which one it got.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
    listener.local_addr().expect("a bound socket has an address").port()
}
