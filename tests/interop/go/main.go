// Reads and writes through a server with nothing but Arrow's own Go client.
//
// main LOCATION FOLDER carries out FOLDER/errand.json: each step names a call and its request, and what is read or
// written is an IPC stream in FOLDER. What the server said goes to standard output, one JSON object for each step.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// Step is one call: its kind (list, get, put, action), the request or the action's name, and the file for rows.
type Step struct {
	Call    string          `json:"call"`
	Request json.RawMessage `json:"request"`
	File    string          `json:"file"`
}

// Said is what the server answered.
type Said struct {
	Code     string   `json:"code"`
	Message  string   `json:"message,omitempty"`
	Rows     int64    `json:"rows"`
	Texts    []string `json:"texts,omitempty"`
	Metadata string   `json:"metadata,omitempty"`
}

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

func run(location, folder string) error {
	content, err := os.ReadFile(filepath.Join(folder, "errand.json"))
	if err != nil {
		return err
	}
	var steps []Step
	if err := json.Unmarshal(content, &steps); err != nil {
		return err
	}
	client, err := flight.NewClientWithMiddleware(
		location, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer client.Close()
	out := json.NewEncoder(os.Stdout)
	for _, step := range steps {
		said := Said{}
		err := carryOut(context.Background(), client, step, filepath.Join(folder, step.File), &said)
		said.Code = status.Code(err).String()
		if err != nil {
			said.Message = status.Convert(err).Message()
		}
		if err := out.Encode(said); err != nil {
			return err
		}
	}
	return nil
}

func carryOut(ctx context.Context, client flight.Client, step Step, file string, said *Said) error {
	switch step.Call {
	case "list":
		return list(ctx, client, said)
	case "get":
		return get(ctx, client, step.Request, file, said)
	case "put":
		return put(ctx, client, step.Request, file, said)
	case "action":
		return action(ctx, client, step, said)
	}
	return errors.New("no such call: " + step.Call)
}

func list(ctx context.Context, client flight.Client, said *Said) error {
	flights, err := client.ListFlights(ctx, &flight.Criteria{})
	if err != nil {
		return err
	}
	for {
		info, err := flights.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		said.Texts = append(said.Texts, string(info.Endpoint[0].Ticket.Ticket))
	}
}

// get asks for the flight's endpoints and reads each, in order, into one file.
func get(ctx context.Context, client flight.Client, request []byte, file string, said *Said) error {
	info, err := client.GetFlightInfo(ctx, &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: request})
	if err != nil {
		return err
	}
	var writer *ipc.Writer
	kept, err := os.Create(file)
	if err != nil {
		return err
	}
	defer kept.Close()
	for _, endpoint := range info.Endpoint {
		stream, err := client.DoGet(ctx, endpoint.Ticket)
		if err != nil {
			return err
		}
		rows, err := flight.NewRecordReader(stream)
		if err != nil {
			return err
		}
		if writer == nil {
			writer = ipc.NewWriter(kept, ipc.WithSchema(rows.Schema()))
		}
		for rows.Next() {
			said.Rows += rows.RecordBatch().NumRows()
			if metadata := rows.LatestAppMetadata(); len(metadata) > 0 {
				said.Metadata = string(metadata)
			}
			if err := writer.Write(rows.RecordBatch()); err != nil {
				return err
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		rows.Release()
	}
	return writer.Close()
}

// put sends the batches of a file, and waits for the last acknowledgement.
func put(ctx context.Context, client flight.Client, request []byte, file string, said *Said) error {
	kept, err := os.Open(file)
	if err != nil {
		return err
	}
	defer kept.Close()
	rows, err := ipc.NewReader(kept)
	if err != nil {
		return err
	}
	defer rows.Release()
	stream, err := client.DoPut(ctx)
	if err != nil {
		return err
	}
	writer := flight.NewRecordWriter(stream, ipc.WithSchema(rows.Schema()))
	writer.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: request})
	for rows.Next() {
		if err := writer.Write(rows.RecordBatch()); err != nil {
			break // why, the acknowledgements' stream says
		}
		said.Rows += rows.RecordBatch().NumRows()
	}
	if err := writer.Close(); err != nil && err != io.EOF {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		result, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		said.Metadata = string(result.AppMetadata)
	}
}

func action(ctx context.Context, client flight.Client, step Step, said *Said) error {
	results, err := client.DoAction(ctx, &flight.Action{Type: step.File, Body: step.Request})
	if err != nil {
		return err
	}
	for {
		result, err := results.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		said.Texts = append(said.Texts, string(result.Body))
	}
}
