package invent

import (
	"fmt"
	"math"
	"time"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/test/scenes"
)

// Usage is how much the GPUs of a cluster are used. It does not change.
type Usage Objects

// Subscribe implements web.Usage.
func (Usage) Subscribe(string) (<-chan struct{}, func()) { return nil, func() {} }

// Node implements web.Usage.
func (u Usage) Node(node string) (map[string]overview.Usage, error) {
	out := map[string]overview.Usage{}
	now := time.Now()
	percent := func(v float64) string { return fmt.Sprintf("%.0f %%", v*100) }
	for slot := range slots {
		compute, memory := overview.Series{Title: "Compute", Max: 1, Text: percent}, overview.Series{Title: "Memory used", Max: 1, Text: percent}
		for i := range 240 {
			at := now.Add(time.Duration(i-239) * 15 * time.Second)
			compute.Points = append(compute.Points, overview.Point{At: at, Value: 0.55 + 0.35*math.Sin(float64(i)/17+float64(slot))*math.Sin(float64(i)/3)})
			memory.Points = append(memory.Points, overview.Point{At: at, Value: 0.6 + 0.1*math.Sin(float64(i)/60)})
		}
		out[scenes.GPUOf(slot)] = overview.Usage{Short: "compute 62 %, 49.0 GiB", Series: []overview.Series{compute, memory}, ByClaim: map[string]string{}}
	}
	for i := range u.Claims {
		c := &u.Claims[i]
		if c.Status.Allocation == nil || scenes.Result(c).Pool != node {
			continue
		}
		if of := out[cluster.GPUOf(scenes.Result(c).Device)]; of.ByClaim != nil {
			of.ByClaim[scenes.Result(c).Device+"/"+c.Namespace+"/"+c.Name] = fmt.Sprintf("compute %d %%, %.1f GiB", 3+i*7%40, 0.5+float64(i%9)*0.7)
		}
	}
	return out, nil
}
