package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/sleep"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/figures"
)

const (
	inventories = "pkg/publish/models/inventories"
	// mostWrites is how many API writes a switch of eight GPUs may take, besides
	// evictions and what concerns pods.
	mostWrites = 40
	// mostOverhead is how many seconds a switch may take beside eviction and hardware.
	mostOverhead = 3
	// rounds is how often a node goes through its profiles.
	rounds = 5
	// switchPatience is how long a switch may take.
	switchPatience = time.Minute
	// quiet is how long to wait for what a plugin writes after a switch: it reports
	// every ten seconds if something has changed.
	quiet = 12 * time.Second
)

// ofSwitches are the resources that a switch writes: those of the controller and the
// plugins, and events. Leases are not among them, nor the status that the kubelet keeps
// of nodes.
var ofSwitches = []string{"gpunodes", "gpunodes/status", "resourceslices", "nodes", "events", "partitionprofiles", "partitionplans", "partitionplans/status"}

// vendors are the nodes, what is on them, the profiles through which they go, and how
// many API writes that may take. A GPU whose compute partition changes is published once
// more: with the devices of the new mode, before the profile counts as applied.
var vendors = []struct {
	node, inventory, name string
	profiles              []string
	writes                float64
}{
	{"node-a", "h100x8", "8 H100", []string{"all-balanced", "all-1g.10gb", "whole"}, mostWrites},
	{"node-b", "mi300x8", "8 MI300X", []string{"cpx", "cpx-nps4", "spx-nps1"}, mostWrites + 8},
}

// oneSwitch is one, to a profile.
type oneSwitch struct {
	profile string
	// took is from the label to the moment when the node rests in the profile, in
	// seconds and each time that it was done.
	took    []float64
	written controlplane.Writes
}

// seconds is what the switch takes. The machine does other things, too, so it is the
// median.
func (o *oneSwitch) seconds() float64 { return figures.Median(o.took) }

func (s *scale) switchFigures(ctx context.Context) []figures.Figure {
	run := sync.OnceValues(func() (map[string][]oneSwitch, error) { return s.runSwitches(ctx) })
	var all []figures.Figure
	for _, v := range vendors {
		figure := func(name string, limit figures.Limit, value func(*oneSwitch) float64, seen func(*oneSwitch) string) {
			all = append(all, figures.Figure{Name: fmt.Sprintf("a switch of %s: %s", v.name, name), Limit: limit,
				Measure: figures.From(run, func(r map[string][]oneSwitch) figures.Reading { return worst(r[v.node], value, seen) })})
		}
		figure("time beside hardware and eviction", figures.AtMost(mostOverhead, "s"),
			(*oneSwitch).seconds,
			func(o *oneSwitch) string { return fmt.Sprintf("%s %.2f", o.profile, o.seconds()) })
		figure("API writes", figures.AtMost(v.writes, "writes"),
			func(o *oneSwitch) float64 { return float64(o.written.Sum()) },
			func(o *oneSwitch) string {
				return fmt.Sprintf("%s %d+%d+%d", o.profile, o.written.Of("gpunodes", "gpunodes/status"), o.written.Of("resourceslices"), o.written.Of("events", "nodes"))
			})
	}
	return all
}

// worst is the greatest value, and what was seen of all.
func worst(all []oneSwitch, value func(*oneSwitch) float64, seen func(*oneSwitch) string) figures.Reading {
	var r figures.Reading
	for i := range all {
		r.Value = max(r.Value, value(&all[i]))
		if i > 0 {
			r.Seen += ", "
		}
		r.Seen += seen(&all[i])
	}
	return r
}

// runSwitches starts a cluster with the real plugin on every node, and has each node
// switched several times.
func (s *scale) runSwitches(ctx context.Context) (map[string][]oneSwitch, error) {
	values, err := atOnceValues(inventories)
	if err != nil {
		return nil, err
	}
	nodes := ""
	for i, v := range vendors {
		if i > 0 {
			nodes += ","
		}
		nodes += v.node
	}
	c, err := s.up(ctx, "--nodes", nodes)
	if err != nil {
		return nil, err
	}
	defer s.launcher.Down(ctx)
	file := s.launcher.Own("values.yaml")
	if err := os.MkdirAll(s.launcher.Own(), 0o750); err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, values, 0o600); err != nil {
		return nil, err
	}
	if err := s.launcher.Command(ctx, "test/deploy.sh", s.launcher.Dir, "--values", file); err != nil {
		return nil, fmt.Errorf("install the chart (make image makes the image): %w", err)
	}
	all := map[string][]oneSwitch{}
	for _, v := range vendors {
		// Node and controller meet first.
		if _, err := c.awaitProfile(ctx, v.node, ""); err != nil {
			return nil, err
		}
	}
	if err := sleep.For(ctx, quiet); err != nil {
		return nil, err
	}
	for _, v := range vendors {
		if all[v.node], err = c.measureNode(ctx, v.node, v.profiles); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// measureNode goes through the profiles of a node several times, and counts writes the
// first time.
func (c *cluster) measureNode(ctx context.Context, node string, profiles []string) ([]oneSwitch, error) {
	all := make([]oneSwitch, len(profiles))
	for round := range rounds {
		for i, profile := range profiles {
			o := &all[i]
			o.profile = profile
			if err := c.measureSwitch(ctx, node, o, round == 0); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// atOnceValues are the chart's values for nodes with hardware like that of the
// inventories, which takes no time to change.
func atOnceValues(dir string) ([]byte, error) {
	nodes, own := map[string]string{}, map[string]any{}
	for _, v := range vendors {
		data, err := os.ReadFile(filepath.Join(dir, v.inventory+".yaml"))
		if err != nil {
			return nil, fmt.Errorf("read the inventory (run this from the root of the repository): %w", err)
		}
		inventory := map[string]any{}
		if err := yaml.Unmarshal(data, &inventory); err != nil {
			return nil, err
		}
		none := func(names ...string) map[string]any {
			delays := map[string]any{}
			for _, name := range names {
				delays[name] = "0s"
			}
			return delays
		}
		if amd, ok := inventory["amd"].(map[string]any); ok {
			amd["delays"] = none("switchMode", "renderNodes", "loadDriver")
		} else {
			inventory["delays"] = none("createGPUInstance", "createComputeInstance", "destroyComputeInstance", "destroyGPUInstance", "setMigMode")
		}
		name := v.inventory + "-at-once"
		nodes[v.node], own[name] = name, inventory
	}
	return yaml.Marshal(map[string]any{
		"amd":      map[string]any{"memoryPartitions": map[string]any{"enabled": true}},
		"simulate": map[string]any{"nodes": nodes, "inventories": own},
	})
}

// measureSwitch labels a node and waits until it rests in the profile, and until
// everything that belongs to the switch is written if that is counted.
func (c *cluster) measureSwitch(ctx context.Context, node string, o *oneSwitch, count bool) error {
	before, err := c.ReadWrites(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := c.label(ctx, node, o.profile); err != nil {
		return err
	}
	end, err := c.awaitProfile(ctx, node, o.profile)
	if err != nil {
		return err
	}
	o.took = append(o.took, end.Sub(start).Seconds())
	if !count {
		return nil
	}
	if err := sleep.For(ctx, quiet); err != nil {
		return err
	}
	after, err := c.ReadWrites(ctx)
	if err != nil {
		return err
	}
	o.written = after.Since(before, ofSwitches...)
	o.written[controlplane.Write{Resource: "nodes", Verb: "PATCH"}]-- // the label
	return nil
}

// awaitProfile waits until a node rests in a profile, and says when it was seen.
func (c *cluster) awaitProfile(ctx context.Context, node, profile string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, switchPatience)
	defer cancel()
	w, err := c.tranche.GPUNodes().Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, node).String()})
	if err != nil {
		return time.Time{}, fmt.Errorf("watch GPUNode %s: %w", node, err)
	}
	defer w.Stop()
	last := ""
	for {
		select {
		case e, ok := <-w.ResultChan():
			n, is := e.Object.(*v1beta1.GPUNode)
			if !ok || !is || e.Type == watch.Error {
				return time.Time{}, fmt.Errorf("the watch of GPUNode %s has ended: %v", node, e.Object)
			}
			if s := &n.Status; s.State == v1beta1.Idle && s.Applied != nil && s.Applied.ProfileName == profile {
				return time.Now(), nil
			}
			last = string(n.Status.State)
			if s := n.Status.Switch; s != nil && s.Message != "" {
				last += ": " + s.Message
			}
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%s does not come to profile %q: %s: %w", node, profile, last, ctx.Err())
		}
	}
}
