package picture

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

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
