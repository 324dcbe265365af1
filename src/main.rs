//! The command `midflush`.

fn main() -> std::process::ExitCode {
    midflush::cli::main()
}
