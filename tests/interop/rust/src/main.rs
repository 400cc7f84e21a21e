//! Reads and writes through a server with nothing but Arrow's own Rust client.
//!
//! `interop LOCATION FOLDER` carries out `FOLDER/errand.json`: each step names a call and its request, and what is read
//! or written is an IPC stream in FOLDER. What the server said goes to standard output, one JSON object for each step.

use std::error::Error;
use std::fs::File;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::{Action, FlightClient, FlightDescriptor};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use futures::{stream, StreamExt, TryStreamExt};
use serde_json::{json, Value};
use tonic::transport::Channel;

#[derive(Default)]
struct Said {
    rows: usize,
    texts: Vec<String>,
    metadata: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let folder = Path::new(&arguments[2]);
    let steps: Vec<Value> = serde_json::from_reader(File::open(folder.join("errand.json"))?)?;
    let channel = Channel::from_shared(format!("http://{}", arguments[1]))?.connect().await?;
    let mut client = FlightClient::new(channel);
    for step in steps {
        let mut said = Said::default();
        let (code, message) = match carry_out(&mut client, &step, folder, &mut said).await {
            Ok(()) => ("OK".to_string(), String::new()),
            Err(error) => match error.downcast::<FlightError>() {
                Ok(error) => match *error {
                    FlightError::Tonic(status) => (format!("{:?}", status.code()), status.message().to_string()),
                    other => return Err(other.into()),
                },
                Err(other) => return Err(other),
            },
        };
        println!(
            "{}",
            json!({"code": code, "message": message, "rows": said.rows, "texts": said.texts, "metadata": said.metadata})
        );
    }
    Ok(())
}

async fn carry_out(
    client: &mut FlightClient,
    step: &Value,
    folder: &Path,
    said: &mut Said,
) -> Result<(), Box<dyn Error>> {
    let request = serde_json::to_vec(&step["request"])?;
    let name = step["file"].as_str().unwrap_or_default();
    match step["call"].as_str() {
        Some("list") => list(client, said).await,
        Some("get") => get(client, request, &folder.join(name), said).await,
        Some("put") => put(client, request, &folder.join(name), said).await,
        Some("action") => action(client, name, request, said).await,
        _ => Err("no such call".into()),
    }
}

async fn list(client: &mut FlightClient, said: &mut Said) -> Result<(), Box<dyn Error>> {
    let mut flights = client.list_flights("").await?;
    while let Some(info) = flights.try_next().await? {
        let ticket = info.endpoint[0].ticket.as_ref().ok_or("an endpoint without a ticket")?;
        said.texts.push(String::from_utf8(ticket.ticket.to_vec())?);
    }
    Ok(())
}

/// Asks for the flight's endpoints and reads each, in order, into one file.
async fn get(
    client: &mut FlightClient,
    request: Vec<u8>,
    file: &Path,
    said: &mut Said,
) -> Result<(), Box<dyn Error>> {
    let info = client.get_flight_info(FlightDescriptor::new_cmd(request)).await?;
    let mut writer: Option<StreamWriter<File>> = None;
    for endpoint in info.endpoint {
        let ticket = endpoint.ticket.ok_or("an endpoint without a ticket")?;
        let answer = client.inner_mut().do_get(ticket).await.map_err(FlightError::from)?;
        let mut rows = FlightDataDecoder::new(answer.into_inner().map_err(FlightError::from));
        while let Some(data) = rows.try_next().await? {
            if !data.inner.app_metadata.is_empty() {
                said.metadata = String::from_utf8(data.inner.app_metadata.to_vec())?;
            }
            match data.payload {
                DecodedPayload::Schema(schema) if writer.is_none() => {
                    writer = Some(StreamWriter::try_new(File::create(file)?, &schema)?);
                }
                DecodedPayload::RecordBatch(batch) => {
                    said.rows += batch.num_rows();
                    writer.as_mut().ok_or("rows before a schema")?.write(&batch)?;
                }
                _ => {}
            }
        }
    }
    writer.ok_or("no schema")?.finish()?;
    Ok(())
}

/// Sends the batches of a file, and waits for the last acknowledgement.
async fn put(
    client: &mut FlightClient,
    request: Vec<u8>,
    file: &Path,
    said: &mut Said,
) -> Result<(), Box<dyn Error>> {
    let batches: Vec<RecordBatch> = StreamReader::try_new(File::open(file)?, None)?.collect::<Result<_, _>>()?;
    said.rows = batches.iter().map(RecordBatch::num_rows).sum();
    let data = FlightDataEncoderBuilder::new()
        .with_flight_descriptor(Some(FlightDescriptor::new_cmd(request)))
        .build(stream::iter(batches).map(Ok));
    let mut acknowledged = client.do_put(data).await?;
    while let Some(result) = acknowledged.try_next().await? {
        said.metadata = String::from_utf8(result.app_metadata.to_vec())?;
    }
    Ok(())
}

async fn action(
    client: &mut FlightClient,
    name: &str,
    body: Vec<u8>,
    said: &mut Said,
) -> Result<(), Box<dyn Error>> {
    let mut results = client.do_action(Action::new(name, body)).await?;
    while let Some(result) = results.try_next().await? {
        said.texts.push(String::from_utf8(result.to_vec())?);
    }
    Ok(())
}
