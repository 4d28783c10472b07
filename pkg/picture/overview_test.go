package picture

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/test/scenes"
)

func TestPicturesOfOverviews(t *testing.T) {
	partial := scenes.Fleet()
	partial.Partial = true
	partial.Unread = scenes.Partial().Unread
	for name, scene := range map[string]scenes.Scene{
		"overview": scenes.Fleet(), "overview-partial": partial, "overview-shared": scenes.Shared(), "overview-none": {View: cluster.View{Selector: "gpu=yes", Nodes: []string{}}},
	} {
		checkDrawn(t, name, func(p *Page) { DrawOverview(p, scene.Summary(), false) })
		checkDrawn(t, name+"-wide", func(p *Page) { DrawOverview(p, scene.Summary(), true) })
	}
}

// Some nodes in trouble are named, and all of them if the picture is wide.
func TestManyNodesInTrouble(t *testing.T) {
	var o cluster.Objects
	for i := range maxListed + 2 {
		name := fmt.Sprintf("node-%02d", i)
		o.Slices = append(o.Slices, scenes.L4(name, 0)...)
		o.Nodes = append(o.Nodes, scenes.Node(name, corev1.ConditionFalse, false))
		o.Claims = append(o.Claims, scenes.Claim("team", name, name, 0, scenes.GPUOf(0)))
	}
	s := scenes.Scene{Objects: o}.Summary()
	some, all := drawn(t, Screen{Width: 80}, func(p *Page) { DrawOverview(p, s, false) }), drawn(t, Screen{Width: 80}, func(p *Page) { DrawOverview(p, s, true) })
	assert.Contains(t, some, "  free:   nothing, all GPUs are full or blocked\n")
	assert.Contains(t, some, "  node-09: Not ready.\n  and 2 more, which -o wide lists\n")
	assert.Contains(t, all, "  node-11: Not ready.\n")
	assert.NotContains(t, all, "and 2 more")
}

// Every scene can be summed up.
func TestOverviewsFitTheTerminal(t *testing.T) {
	for name, scene := range scenes.All {
		for _, width := range []int{40, 80, 140} {
			got := drawn(t, Screen{Width: width}, func(p *Page) { DrawOverview(p, scene().Summary(), false) })
			for line := range strings.Lines(got) {
				if !strings.Contains(line, "kubectl") && !strings.Contains(line, "/") {
					assert.LessOrEqual(t, Width(strings.TrimSuffix(line, "\n")), width, "%s: %s", name, line)
				}
			}
		}
	}
}
