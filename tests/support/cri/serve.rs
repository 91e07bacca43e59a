//! Between gRPC and the model: each call gets a thread, so that gRPC's own thread never waits.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cleat::cri::proto::runtime::{ContainerEventResponse, GetEventsRequest};
use cleat::cri::proto::runtime_services as methods;
use futures_util::SinkExt;
use grpcio::{
    GrpcSlice, Marshaller, MessageReader, Method, RpcStatus, RpcStatusCode, ServerStreamingSink, Service,
    ServiceBuilder, UnarySink, WriteFlags,
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use protobuf::Message;

use super::super::block_on;
use super::faults::{Chosen, Faults, Verdict, status};
use super::model::{Model, Subject};
use super::operations::Operation;

pub(super) const METHODS: &[&str] = &[
    "Version",
    "Status",
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "PodSandboxStatus",
    "ListPodSandbox",
    "CreateContainer",
    "StartContainer",
    "StopContainer",
    "RemoveContainer",
    "ListContainers",
    "ContainerStatus",
    "ReopenContainerLog",
    "ExecSync",
    "GetContainerEvents",
    "ImageStatus",
    "PullImage",
];

/// Field 15 with a wire type that there isn't.
const GARBAGE: &[u8] = &[0x7f; 12];

#[derive(Default)]
pub(super) struct ServerState {
    pub model: Model,
    pub faults: Faults,
    pub events_on: bool,
    /// Counts the server's ends; a call of an earlier life has no effect any more.
    life: u32,
    /// Threads that have a call.
    busy: usize,
}

#[derive(Default)]
pub(super) struct Shared {
    state: Mutex<ServerState>,
    changed: Condvar,
}

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock()
    }

    /// Changes the state and wakes all who wait for a change.
    pub fn change<T>(&self, change: impl FnOnce(&mut ServerState) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    /// Waits until `holds`, or the deadline: then the error is the model, to be shown.
    pub fn wait(&self, deadline: Instant, mut holds: impl FnMut(&ServerState) -> bool) -> Result<(), String> {
        let mut state = self.lock();
        while !holds(&state) {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return if holds(&state) { Ok(()) } else { Err(state.model.to_string()) };
            }
        }
        Ok(())
    }

    /// Lets all calls under way end without effect.
    pub fn break_calls(&self) {
        self.change(|state| state.life += 1);
    }

    /// Waits until no call is under way, and tells whether that is so.
    pub fn wait_idle(&self, within: Duration) -> bool {
        self.wait(Instant::now() + within, |state| state.busy == 0).is_ok()
    }

    /// Writes down a call, chooses its faults, and counts it as under way.
    fn arrive(&self, method: &'static str, subject: impl FnOnce(&Model) -> Subject) -> Arrival {
        self.change(|state| {
            let subject = subject(&state.model);
            let chosen = state.faults.choose(method, &subject);
            let call = state.model.call(method, subject);
            state.busy += 1;
            Arrival { call, life: state.life, began: Instant::now(), chosen }
        })
    }

    /// Waits out the delays and hangs of a call. `None` when the server ended meanwhile.
    fn wait_faults(&self, arrival: &Arrival) -> Option<()> {
        let mut state = self.lock();
        for (id, time) in &arrival.chosen.waits {
            let deadline = time.map(|time| Instant::now() + time);
            while state.life == arrival.life && state.faults.lasts(*id) {
                match deadline {
                    None => self.changed.wait(&mut state),
                    Some(deadline) if self.changed.wait_until(&mut state, deadline).timed_out() => break,
                    Some(_) => {}
                }
            }
        }
        (state.life == arrival.life).then_some(())
    }

    /// Does one call on the model, with its faults. `None` when the server ended meanwhile.
    fn perform<R: Operation>(&self, request: &R, arrival: &Arrival) -> Option<Result<Reply<R::Answer>, RpcStatus>> {
        let verdict = &arrival.chosen.verdict;
        let obeys = matches!(verdict, Verdict::Obey | Verdict::FailAfter(_));
        if obeys {
            // What is refused is refused at once.
            if let Err(status) = self.change(|state| request.begin(&mut state.model)) {
                return Some(Err(status));
            }
        }
        if self.wait_faults(arrival).is_none() {
            if obeys {
                self.change(|state| request.give_up(&mut state.model));
            }
            return None;
        }
        match verdict {
            Verdict::Fail(status) => Some(Err(status.clone())),
            Verdict::Garbage => Some(Ok(Reply::Raw(GARBAGE.to_vec()))),
            Verdict::Empty => Some(Ok(Reply::Message(R::Answer::new()))),
            Verdict::Obey => self.finish(request, arrival).map(|answer| answer.map(Reply::Message)),
            Verdict::FailAfter(status) => {
                self.finish(request, arrival).map(|answer| Err(answer.err().unwrap_or(status.clone())))
            }
        }
    }

    fn finish<R: Operation>(&self, request: &R, arrival: &Arrival) -> Option<Result<R::Answer, RpcStatus>> {
        let mut state = self.lock();
        while let Some(until) = request.waits_until(&state.model, arrival.began).filter(|t| *t > Instant::now()) {
            if state.life != arrival.life {
                break;
            }
            self.changed.wait_until(&mut state, until);
        }
        let answer = if state.life == arrival.life { Some(request.finish(&mut state.model)) } else { None };
        if !matches!(answer, Some(Ok(_))) {
            request.give_up(&mut state.model);
        }
        drop(state);
        self.changed.notify_all();
        answer
    }
}

/// A call that has arrived.
struct Arrival {
    call: u64,
    life: u32,
    began: Instant,
    chosen: Chosen,
}

/// Counts a call as done, also when its thread panics.
struct Busy(Arc<Shared>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.change(|state| state.busy -= 1);
    }
}

/// A message, or bytes in its place.
enum Reply<T> {
    Message(T),
    Raw(Vec<u8>),
}

fn write_reply<T: Message>(reply: &Reply<T>, out: &mut GrpcSlice) -> grpcio::Result<()> {
    match reply {
        Reply::Message(message) => grpcio::pb_ser(message, out),
        Reply::Raw(bytes) => {
            *out = bytes.clone().into();
            Ok(())
        }
    }
}

fn read_reply<T: Message>(reader: MessageReader) -> grpcio::Result<Reply<T>> {
    grpcio::pb_de(reader).map(Reply::Message)
}

/// The same method, with room for garbage in its answer.
fn loosen<Q: Message, A: Message>(method: &Method<Q, A>) -> Method<Q, Reply<A>> {
    Method {
        ty: method.ty,
        name: method.name,
        req_mar: Marshaller { ser: grpcio::pb_ser, de: grpcio::pb_de },
        resp_mar: Marshaller { ser: write_reply, de: read_reply },
    }
}

/// The runtime service and the image service.
pub(super) fn services(shared: &Arc<Shared>) -> [Service; 2] {
    let runtime = Registrar { shared, builder: ServiceBuilder::new() }
        .unary(&methods::VERSION)
        .unary(&methods::STATUS)
        .unary(&methods::RUN_POD_SANDBOX)
        .unary(&methods::STOP_POD_SANDBOX)
        .unary(&methods::REMOVE_POD_SANDBOX)
        .unary(&methods::POD_SANDBOX_STATUS)
        .unary(&methods::LIST_POD_SANDBOX)
        .unary(&methods::CREATE_CONTAINER)
        .unary(&methods::START_CONTAINER)
        .unary(&methods::STOP_CONTAINER)
        .unary(&methods::REMOVE_CONTAINER)
        .unary(&methods::LIST_CONTAINERS)
        .unary(&methods::CONTAINER_STATUS)
        .unary(&methods::REOPEN_CONTAINER_LOG)
        .unary(&methods::EXEC_SYNC)
        .events(&methods::GET_CONTAINER_EVENTS);
    let image =
        Registrar { shared, builder: ServiceBuilder::new() }.unary(&methods::IMAGE_STATUS).unary(&methods::PULL_IMAGE);
    [runtime.builder.build(), image.builder.build()]
}

struct Registrar<'a> {
    shared: &'a Arc<Shared>,
    builder: ServiceBuilder,
}

impl Registrar<'_> {
    fn unary<R: Operation>(self, method: &Method<R, R::Answer>) -> Self {
        let (shared, name) = (self.shared.clone(), short_name(method.name));
        let builder = self.builder.add_unary_handler(&loosen(method), move |_, request: R, sink| {
            answer(&shared, name, request, sink);
        });
        Registrar { builder, ..self }
    }

    fn events(self, method: &Method<GetEventsRequest, ContainerEventResponse>) -> Self {
        let (shared, name) = (self.shared.clone(), short_name(method.name));
        let builder = self.builder.add_server_streaming_handler(&loosen(method), move |_, _, sink| {
            stream_events(&shared, name, sink);
        });
        Registrar { builder, ..self }
    }
}

/// `/runtime.v1.RuntimeService/Version` → `Version`.
fn short_name(path: &'static str) -> &'static str {
    path.rsplit('/').next().unwrap_or(path)
}

fn answer<R: Operation>(shared: &Arc<Shared>, method: &'static str, request: R, sink: UnarySink<Reply<R::Answer>>) {
    let arrival = shared.arrive(method, |model| request.subject(model));
    let shared = shared.clone();
    thread::spawn(move || {
        let _busy = Busy(shared.clone());
        let result = shared.perform(&request, &arrival);
        let code = result.as_ref().map(|r| r.as_ref().err().map_or(RpcStatusCode::OK, RpcStatus::code));
        shared.change(|state| state.model.answered(arrival.call, code.unwrap_or(RpcStatusCode::UNAVAILABLE)));
        // The caller may be gone; then nobody misses the answer.
        let _ = match result {
            Some(Ok(reply)) => block_on(sink.success(reply)),
            Some(Err(status)) => block_on(sink.fail(status)),
            None => block_on(sink.fail(status(RpcStatusCode::UNAVAILABLE, "the server ends"))),
        };
    });
}

fn stream_events(shared: &Arc<Shared>, method: &'static str, sink: ServerStreamingSink<Reply<ContainerEventResponse>>) {
    let arrival = shared.arrive(method, |_| Subject::default());
    let shared = shared.clone();
    let first = shared.lock().model.events.len();
    thread::spawn(move || {
        let _busy = Busy(shared.clone());
        let mut sink = sink;
        let end = match (shared.wait_faults(&arrival), &arrival.chosen.verdict) {
            (None, _) => status(RpcStatusCode::UNAVAILABLE, "the server ends"),
            (_, Verdict::Fail(status) | Verdict::FailAfter(status)) => status.clone(),
            (_, verdict) => pump(&shared, &arrival, first, verdict, &mut sink),
        };
        shared.change(|state| state.model.answered(arrival.call, end.code()));
        let _ = block_on(sink.fail(end));
    });
}

/// Sends events as they come, until the server, the stream or the caller ends.
fn pump(
    shared: &Shared,
    arrival: &Arrival,
    first: usize,
    verdict: &Verdict,
    sink: &mut ServerStreamingSink<Reply<ContainerEventResponse>>,
) -> RpcStatus {
    let odd = match verdict {
        Verdict::Garbage => Some(Reply::Raw(GARBAGE.to_vec())),
        Verdict::Empty => Some(Reply::Message(ContainerEventResponse::new())),
        _ => None,
    };
    if let Some(reply) = odd {
        // Whether or not it got there, the stream goes on or ends by itself below.
        let _ = block_on(sink.send((reply, WriteFlags::default())));
    }
    let mut next = first;
    loop {
        let mut state = shared.lock();
        let event = loop {
            if state.life != arrival.life {
                return status(RpcStatusCode::UNAVAILABLE, "the server ends");
            }
            if !state.events_on {
                return status(RpcStatusCode::UNIMPLEMENTED, "method GetContainerEvents not implemented");
            }
            if let Some(event) = state.model.events.get(next) {
                break event.clone();
            }
            shared.changed.wait(&mut state);
        };
        drop(state);
        next += 1;
        if block_on(sink.send((Reply::Message(event), WriteFlags::default()))).is_err() {
            return status(RpcStatusCode::CANCELLED, "the caller is gone");
        }
    }
}
