use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::http::{Response, serve};

fn start() -> SocketAddr {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    serve(any, "test", |request| Response::text(200, format!("{}|{}", request.path, request.query))).expect("listens")
}

fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.write_all(request).expect("writes");
    let mut answer = String::new();
    // A server that closes before it has read everything may reset the connection.
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn requests_and_refusals() {
    let address = start();
    let table: &[(&[u8], &str, &str)] = &[
        (b"GET /pods?a=b HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK", "/pods|a=b"),
        (b"HEAD /pods HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK", "\r\n\r\n"),
        (b"POST /pods HTTP/1.1\r\n\r\n", "HTTP/1.1 405", "only GET"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", "HTTP/1.1 400", "no HTTP"),
    ];
    for (request, status, end) in table {
        let answer = ask(address, request);
        assert!(answer.starts_with(status) && answer.contains(end), "{answer:?}");
    }
    let long = [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'a'; 20 << 10], b"\r\n\r\n".to_vec()].concat();
    assert!(ask(address, &long).starts_with("HTTP/1.1 431"));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(100));
    assert!(ask(address, many.as_bytes()).starts_with("HTTP/1.1 431"));
}

#[test]
fn a_request_in_pieces() {
    let mut stream = TcpStream::connect(start()).expect("connects");
    for piece in ["GET /x HT", "TP/1.1\r\nA:", " b\r\n", "\r\n"] {
        stream.write_all(piece.as_bytes()).expect("writes");
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("reads");
    assert!(answer.ends_with("/x|"), "{answer}");
}
