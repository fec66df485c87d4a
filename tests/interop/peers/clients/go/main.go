// franz-go as a peer: `transact`, `copy`, `read`, `load` or `consume`, then options.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	bootstrap = flag.String("bootstrap", "", "address of a broker")
	topic     = flag.String("topic", "", "topic to write to, or to read")
	input     = flag.String("input", "", "topic to copy from")
	group     = flag.String("group", "", "group of the copier")
	id        = flag.String("id", "", "transactional id")
	count     = flag.Int("count", 0, "number of records to copy or to read")
	spread    = flag.Int("partitions", 1, "number of partitions that the load writes to")
	size      = flag.Int("size", 1000, "bytes in a record of the load")
	seconds   = flag.Duration("for", time.Second, "duration of the load")
	patience  = flag.Duration("patience", 60*time.Second, "time for everything")
)

func main() {
	verb := os.Args[1]
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil {
		fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), *patience)
	defer cancel()
	var err error
	switch verb {
	case "transact":
		err = transact(ctx)
	case "copy":
		err = copyRecords(ctx)
	case "read":
		err = read(ctx)
	case "load":
		err = load(ctx)
	case "consume":
		err = consume()
	default:
		err = fmt.Errorf("unknown verb %q", verb)
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func newProducer(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options,
		kgo.SeedBrokers(*bootstrap),
		kgo.TransactionalID(*id),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DefaultProduceTopic(*topic),
	)...)
}

// send begins a transaction with a record in each of three partitions.
func send(ctx context.Context, client *kgo.Client, value string) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	for partition := range int32(3) {
		text := fmt.Sprintf("%s-%d", value, partition)
		record := &kgo.Record{Partition: partition, Value: []byte(text)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return fmt.Errorf("producing %s: %w", text, err)
		}
	}
	return nil
}

// transact commits a transaction, aborts one, and is fenced by a successor, which commits.
func transact(ctx context.Context) error {
	first, err := newProducer()
	if err != nil {
		return err
	}
	defer first.Close()
	if err := send(ctx, first, "committed"); err != nil {
		return err
	}
	if err := first.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if err := send(ctx, first, "aborted"); err != nil {
		return err
	}
	if err := first.EndTransaction(ctx, kgo.TryAbort); err != nil {
		return fmt.Errorf("abort: %w", err)
	}
	if err := send(ctx, first, "fenced"); err != nil {
		return err
	}
	second, err := newProducer()
	if err != nil {
		return err
	}
	defer second.Close()
	if err := send(ctx, second, "successor"); err != nil {
		return err
	}
	if err := second.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return fmt.Errorf("commit of the successor: %w", err)
	}
	err = first.EndTransaction(ctx, kgo.TryCommit)
	var refusal *kerr.Error
	if !errors.As(err, &refusal) {
		return fmt.Errorf("the first producer was not fenced: %v", err)
	}
	fmt.Println(refusal.Message)
	return nil
}

// copyRecords copies records in transactions with their offsets, and aborts every third one.
func copyRecords(ctx context.Context) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(*bootstrap),
		kgo.TransactionalID(*id),
		kgo.ConsumerGroup(*group),
		kgo.ConsumeTopics(*input),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxPartitionBytes(256),
		kgo.RequireStableFetchOffsets(),
		kgo.DefaultProduceTopic(*topic),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	for copied, round := 0, 1; copied < *count; round++ {
		fetches := session.PollRecords(ctx, 10)
		if err := fetches.Err0(); err != nil {
			return err
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Value: record.Value}, nil)
		})
		// Without this, an abort would drop the records instead of sending them.
		if err := session.Client().Flush(ctx); err != nil {
			return err
		}
		committed, err := session.End(ctx, kgo.TransactionEndTry(round%3 != 0))
		if err != nil {
			return err
		}
		if committed {
			copied += fetches.NumRecords()
		}
	}
	return nil
}

// read prints the values of committed records.
func read(ctx context.Context) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(*bootstrap),
		kgo.ConsumeTopics(*topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for seen := 0; seen < *count; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Println(string(record.Value))
			seen++
		})
	}
	return nil
}

// load commits transactions of -count records, and prints the number and the latencies of commits.
func load(ctx context.Context) error {
	client, err := newProducer(kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer client.Close()
	value := make([]byte, *size)
	var latencies []float64
	began := time.Now()
	for time.Since(began) < *seconds {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		records := make([]*kgo.Record, *count)
		for at := range records {
			records[at] = &kgo.Record{Partition: int32(at % *spread), Value: value}
		}
		if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return err
		}
		ended := time.Now()
		if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
			return err
		}
		latencies = append(latencies, time.Since(ended).Seconds())
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"elapsed_s": time.Since(began).Seconds(), "commits_s": latencies,
	})
}
