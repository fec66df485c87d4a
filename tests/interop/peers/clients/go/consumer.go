// franz-go as a consumer in a group: `consume`, with the options and the events of ../peer.py.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os/signal"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	clientID    = flag.String("client-id", "", "client id")
	assignor    = flag.String("assignor", "range", "range or uniform")
	protocol    = flag.String("group-protocol", "classic", "classic or consumer")
	instanceID  = flag.String("instance-id", "", "group.instance.id of a static member")
	commitEvery = flag.Int("commit-every", 20, "number of records between two commits")
	recordsMax  = flag.Int("max", 0, "number of records, then close; 0 for ever")
	sessionMs   = flag.Int("session-timeout-ms", 6000, "session timeout, classic protocol only")
	heartbeatMs = flag.Int("heartbeat-interval-ms", 500, "classic protocol only")
)

var output sync.Mutex

// emit prints an event as one line of JSON.
func emit(event string, fields map[string]any) {
	if fields == nil {
		fields = map[string]any{}
	}
	fields["event"] = event
	fields["at"] = float64(time.Now().UnixMilli()) / 1000
	line, err := json.Marshal(fields)
	if err != nil {
		fail(err)
	}
	output.Lock()
	defer output.Unlock()
	fmt.Println(string(line))
}

// emitPartitions prints an event about partitions, unless there are none.
func emitPartitions(event string, partitions map[string][]int32) {
	list := [][]any{}
	for topic, numbers := range partitions {
		for _, number := range numbers {
			list = append(list, []any{topic, number})
		}
	}
	if len(list) > 0 {
		emit(event, map[string]any{"partitions": list})
	}
}

// commitMarked commits the offsets of printed records, and prints the acknowledged ones. After a
// rebalance the offsets remain marked; a later commit has those of the partitions that it keeps.
func commitMarked(ctx context.Context, client *kgo.Client) {
	offsets := client.MarkedOffsets()
	if len(offsets) == 0 {
		return
	}
	if err := client.CommitMarkedOffsets(ctx); err != nil {
		if !errors.Is(err, kerr.StaleMemberEpoch) && !errors.Is(err, kerr.RebalanceInProgress) {
			emit("error", map[string]any{"message": "commit: " + err.Error()})
		}
		return
	}
	list := [][]any{}
	for topic, partitions := range offsets {
		for partition, offset := range partitions {
			list = append(list, []any{topic, partition, offset.Offset})
		}
	}
	sort.Slice(list, func(i, j int) bool { return fmt.Sprint(list[i]) < fmt.Sprint(list[j]) })
	emit("committed", map[string]any{"offsets": list})
}

// consume joins the group, prints records and commits them until SIGTERM or -max records.
func consume() error {
	options := []kgo.Opt{
		kgo.SeedBrokers(*bootstrap),
		kgo.ClientID(*clientID),
		kgo.ConsumerGroup(*group),
		kgo.ConsumeTopics(strings.Split(*topic, ",")...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AutoCommitMarks(),
		kgo.AutoCommitInterval(time.Hour),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, owned map[string][]int32) {
			emitPartitions("assigned", owned)
		}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, cl *kgo.Client, given map[string][]int32) {
			commitMarked(ctx, cl)
			emitPartitions("revoked", given)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
			emitPartitions("lost", lost)
		}),
	}
	if *instanceID != "" {
		options = append(options, kgo.InstanceID(*instanceID))
	}
	balancer := kgo.RangeBalancer()
	if *assignor == "uniform" {
		balancer = kgo.StickyBalancer()
	}
	options = append(options, kgo.Balancers(balancer))
	if *protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	} else {
		options = append(options,
			kgo.SessionTimeout(time.Duration(*sessionMs)*time.Millisecond),
			kgo.HeartbeatInterval(time.Duration(*heartbeatMs)*time.Millisecond),
		)
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	emit("ready", map[string]any{"version": "franz-go"})
	seen, uncommitted := 0, 0
	for stopped.Err() == nil && (*recordsMax == 0 || seen < *recordsMax) {
		round, cancel := context.WithTimeout(stopped, 200*time.Millisecond)
		fetches := client.PollRecords(round, *commitEvery)
		cancel()
		fetches.EachError(func(topic string, partition int32, err error) {
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				emit("error", map[string]any{"message": err.Error()})
			}
		})
		fetches.EachRecord(func(record *kgo.Record) {
			emit("record", map[string]any{
				"topic": record.Topic, "partition": record.Partition,
				"offset": record.Offset, "key": string(record.Key),
			})
			client.MarkCommitRecords(record)
			seen++
			uncommitted++
		})
		if uncommitted >= *commitEvery || fetches.NumRecords() == 0 {
			commitMarked(context.Background(), client)
			uncommitted = 0
		}
		client.AllowRebalance()
	}
	commitMarked(context.Background(), client)
	client.CloseAllowingRebalance()
	emit("closed", nil)
	return nil
}
