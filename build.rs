//! Generates the code for `proto/`: messages by protobuf-codegen, and for each service a client
//! whose calls block, and the method table that servers in tests register handlers on.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use protobuf_codegen::{Codegen, Customize};

const FILES: &[&str] = &["runtime", "health"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let paths: Vec<String> = FILES.iter().map(|name| format!("proto/{name}.proto")).collect();
    println!("cargo::rerun-if-changed=proto");
    Codegen::new()
        .pure()
        .include("proto")
        .inputs(&paths)
        .customize(Customize::default().lite_runtime(true).generate_accessors(false).generate_getter(false))
        .out_dir(&out)
        .run()
        .expect("generate messages");
    let mut modules = fs::read_to_string(out.join("mod.rs")).expect("read the list of modules");
    for (name, path) in FILES.iter().zip(&paths) {
        fs::write(out.join(format!("{name}_services.rs")), services(path, name)).expect("write the services");
        writeln!(modules, "pub mod {name}_services;").expect("write to a string");
    }
    fs::write(out.join("mod.rs"), modules).expect("write the list of modules");
    link_cxx_statically(&out);
    put_hot_code_together();
}

/// Has the linker put what an idle agent runs side by side, as `scripts/hot` found it: of the code, little more
/// than that is in memory then. GNU's linker and LLVM's read such a script.
fn put_hot_code_together() {
    println!("cargo::rerun-if-changed=src/hot.ld");
    if env::var("PROFILE").as_deref() == Ok("release") {
        let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{root}/src/hot.ld");
    }
}

/// gRPC's core asks for `-lstdc++`. Here it finds the static library under that name: the part of it that is
/// used takes a tenth of the memory of the shared one, and a board needs no C++ library. Where there is no
/// static one, and where another machine is built for, the linker finds what it finds.
fn link_cxx_statically(out: &Path) {
    if env::var_os("HOST") != env::var_os("TARGET") {
        return;
    }
    let compiler = env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let Ok(said) = Command::new(compiler).arg("-print-file-name=libstdc++.a").output() else { return };
    let archive = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    // A compiler that has none says the bare name.
    if Path::new(&archive).is_absolute() && Path::new(&archive).is_file() {
        fs::write(out.join("libstdc++.so"), format!("INPUT({archive})\n")).expect("write the linker script");
        println!("cargo::rustc-link-search=native={}", out.display());
    }
}

fn services(path: &str, module: &str) -> String {
    let set = protobuf_parse::Parser::new()
        .pure()
        .include("proto")
        .input(path)
        .file_descriptor_set()
        .expect("parse the proto file");
    let message = |full: &str| format!("super::{module}::{}", full.rsplit('.').next().unwrap_or(full));
    let mut code = String::new();
    for file in &set.file {
        for service in &file.service {
            let full = format!("{}.{}", file.package(), service.name());
            let methods: Vec<Method> = service
                .method
                .iter()
                .map(|m| Method {
                    wire: m.name().to_owned(),
                    request: message(m.input_type()),
                    response: message(m.output_type()),
                    streams: m.server_streaming(),
                })
                .collect();
            for m in &methods {
                m.constant(&full, &mut code);
            }
            let name = service.name();
            writeln!(code, "#[derive(Clone)]\npub struct {name}Client(pub grpcio::Client);\nimpl {name}Client {{")
                .expect("write to a string");
            for m in &methods {
                m.call(&mut code);
            }
            code.push_str("}\n");
        }
    }
    code
}

struct Method {
    wire: String,
    request: String,
    response: String,
    streams: bool,
}

impl Method {
    fn constant(&self, service: &str, code: &mut String) {
        let Method { wire, request, response, streams } = self;
        let ty = if *streams { "ServerStreaming" } else { "Unary" };
        let name = snake(wire).to_uppercase();
        writeln!(
            code,
            "pub static {name}: grpcio::Method<{request}, {response}> = grpcio::Method {{\n    \
             ty: grpcio::MethodType::{ty},\n    name: \"/{service}/{wire}\",\n    \
             req_mar: grpcio::Marshaller {{ ser: grpcio::pb_ser, de: grpcio::pb_de }},\n    \
             resp_mar: grpcio::Marshaller {{ ser: grpcio::pb_ser, de: grpcio::pb_de }},\n}};"
        )
        .expect("write to a string");
    }

    fn call(&self, code: &mut String) {
        let Method { wire, request, response, streams } = self;
        let (returns, how) = if *streams {
            (format!("grpcio::ClientSStreamReceiver<{response}>"), "server_streaming")
        } else {
            (response.clone(), "unary_call")
        };
        let name = snake(wire);
        let constant = name.to_uppercase();
        writeln!(
            code,
            "    pub fn {name}(&self, request: &{request}, options: grpcio::CallOption) -> grpcio::Result<{returns}> {{\n        \
             self.0.{how}(&{constant}, request, options)\n    }}"
        )
        .expect("write to a string");
    }
}

/// `RunPodSandbox` → `run_pod_sandbox`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for (i, c) in name.char_indices() {
        if c.is_ascii_uppercase() && i > 0 {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}
