// Command page serves the web page of an invented cluster, without an API server: to look at it,
// for its screenshots, and for the tests in a browser.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/web"
	"github.com/tranche-dev/tranche/pkg/web/live"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/test/page/invent"
)

func main() {
	nodes := flag.Int("nodes", 1000, "nodes of the cluster")
	address := flag.String("address", "127.0.0.1:0", "address to listen on")
	churn := flag.Duration("churn", 0, "time between changes; 0: nothing changes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *nodes, *address, *churn)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, nodes int, address string, churn time.Duration) error {
	began := time.Now()
	objects := invent.Cluster(nodes, time.Now())
	store := live.New(time.Now)
	if err := store.Load(objects.Objects, objects.Plans...); err != nil {
		return err
	}
	loaded := time.Now()
	store.Step(ctx)
	go store.Run(ctx)
	page, err := web.New(web.Options{Source: store, Now: time.Now, Why: explain(objects.Objects), Usage: invent.Usage(objects)})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d nodes: invented and packed in %s, computed in %s\n", nodes, loaded.Sub(began).Round(time.Millisecond), time.Since(loaded).Round(time.Millisecond))
	fmt.Printf("http://%s/\n", listener.Addr())
	server := &http.Server{Handler: page, ReadHeaderTimeout: 10 * time.Second}
	if churn > 0 {
		go change(ctx, store, objects.Claims, churn)
	}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// change releases and allocates claims.
func change(ctx context.Context, store *live.Store, claims []resourceapi.ResourceClaim, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c := claims[rand.IntN(len(claims))].DeepCopy() //nolint:gosec // it need not be secret
			if c.Status.Allocation == nil {
				continue
			}
			if rand.IntN(2) == 0 { //nolint:gosec // it need not be secret
				c.Status.Allocation, c.Status.ReservedFor = nil, nil
			}
			if err := store.Put(c); err != nil {
				fmt.Fprintln(os.Stderr, "error:", err)
			}
		}
	}
}

// explain explains a pod by the nodes that come first, of which there are enough.
func explain(o cluster.Objects) func(context.Context, overview.Viewer, string, string) (*why.Explanation, error) {
	return func(ctx context.Context, _ overview.Viewer, namespace, name string) (*why.Explanation, error) {
		in := why.Input{Objects: o}
		known := map[string]bool{}
		in.Slices = nil
		for _, s := range o.Slices {
			known[*s.Spec.NodeName] = true
			if len(known) > 6 {
				break
			}
			in.Slices = append(in.Slices, s)
		}
		for i := range o.PendingPods {
			if p := &o.PendingPods[i]; p.Namespace == namespace && p.Name == name {
				in.Pod = p
				return why.Explain(ctx, in), nil
			}
		}
		return why.ExplainAbsence(why.AbsentInput{Namespace: namespace, Name: name}), nil
	}
}
