use std::process::ExitCode;

fn main() -> ExitCode {
    cleat::sys::one_arena();
    cleat::cmd::main(std::env::args_os())
}
