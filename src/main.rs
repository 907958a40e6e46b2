//! The `greenroom` program.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    std::process::exit(greenroom::main_with(std::env::args_os()));
}
