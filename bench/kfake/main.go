// kfake, the broker of franz-go, as a process: prints its address and runs until killed.
//
// It keeps everything in memory, or with -data-dir in files.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// configs is the value of a flag that may be repeated: NAME=VALUE.
type configs map[string]string

func (c configs) String() string { return "" }

func (c configs) Set(text string) error {
	name, value, found := strings.Cut(text, "=")
	if !found {
		return fmt.Errorf("expected NAME=VALUE")
	}
	c[name] = value
	return nil
}

func main() {
	overrides := configs{}
	dataDir := flag.String("data-dir", "", "directory of the files; by default everything is in memory")
	isSynced := flag.Bool("sync", false, "sync each write before it is acknowledged")
	sessionMax := flag.Duration("session-max", 5*time.Minute, "longest session timeout of a member")
	sessionMin := flag.Duration("session-min", 6*time.Second, "shortest session timeout of a member")
	flag.Var(overrides, "override", "a config of the broker, NAME=VALUE")
	flag.Parse()
	options := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.BrokerConfigs(overrides),
		kfake.GroupMaxSessionTimeout(*sessionMax),
		kfake.GroupMinSessionTimeout(*sessionMin),
	}
	if *dataDir != "" {
		options = append(options, kfake.DataDir(*dataDir))
	}
	if *isSynced {
		options = append(options, kfake.SyncWrites())
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(cluster.ListenAddrs()[0])
	select {}
}
