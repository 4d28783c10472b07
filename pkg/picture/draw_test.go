package picture

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/scenes"
)

func draw(t *testing.T, in scenes.Scene, screen Screen, wide bool) string {
	t.Helper()
	return drawn(t, screen, func(p *Page) { Draw(p, in.Summary(), wide) })
}

// drawn is what draw puts on a page.
func drawn(t *testing.T, screen Screen, draw func(*Page)) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, screen.Draw(&b, draw))
	return b.String()
}

func TestPictures(t *testing.T) {
	for name, scene := range scenes.All {
		for _, width := range []int{60, 80, 140} {
			t.Run(fmt.Sprintf("%s at %d", name, width), func(t *testing.T) {
				got := draw(t, scene(), Screen{Width: width}, false)
				golden.Equal(t, filepath.Join("testdata", fmt.Sprintf("%s.%d.txt", name, width)), got)
			})
		}
	}
}

// A line may be longer than the terminal only for a word that is: a command or
// a name that people copy.
func TestNoLineIsWiderThanTheTerminal(t *testing.T) {
	for name, scene := range scenes.All {
		assert.Equal(t, draw(t, scene(), Screen{Width: MinWidth}, false), draw(t, scene(), Screen{Width: 10}, false), "%s, too narrow", name)
		for _, width := range []int{80, 100, 140, 200} {
			for _, line := range strings.Split(draw(t, scene(), Screen{Width: width}, false), "\n") {
				if !strings.Contains(line, "    kubectl") {
					assert.LessOrEqual(t, utf8.RuneCountInString(line), width, "%s at %d: %s", name, width, line)
				}
			}
		}
	}
}

func TestBarsOfAllGPUsEndInOneColumn(t *testing.T) {
	for name, scene := range scenes.All {
		ends := map[int]bool{}
		for _, line := range strings.Split(draw(t, scene(), Screen{Width: 80}, false), "\n") {
			if strings.HasSuffix(line, "│") {
				ends[utf8.RuneCountInString(line)] = true
			}
		}
		assert.LessOrEqual(t, len(ends), 1, name)
	}
}

var escape = regexp.MustCompile("\x1b\\[[0-9;]*m")

func TestColorSaysNothingThatTextDoesNot(t *testing.T) {
	boxes := strings.NewReplacer("━", " ")
	squeeze := func(s string) string { return strings.Join(strings.Fields(boxes.Replace(s)), " ") }
	for name, scene := range scenes.All {
		colored := draw(t, scene(), Screen{Width: 100, Color: true}, false)
		assert.Contains(t, colored, "\x1b[", name)
		assert.Equal(t, squeeze(draw(t, scene(), Screen{Width: 100}, false)), squeeze(escape.ReplaceAllString(colored, "")), name)
	}
}

// Look at the golden file in a terminal.
func TestGoldenColors(t *testing.T) {
	screen := Screen{Width: 100, Color: true}
	hidden := scenes.Mixed()
	hidden.View.Namespace, hidden.Claims = "default", append(hidden.Claims, scenes.Claim("default", "whole", "node-a", 2, scenes.GPUOf(2)))
	got := draw(t, hidden, screen, true) + draw(t, scenes.Shared(), screen, true) + draw(t, scenes.Switching(), screen, false)
	golden.Equal(t, "testdata/colors.txt", got)
}

func TestWithoutColorThereIsNoEscape(t *testing.T) {
	for name, scene := range scenes.All {
		assert.NotContains(t, draw(t, scene(), Screen{Width: 100}, false), "\x1b", name)
	}
}

func TestASCIIIsASCIIAndAligned(t *testing.T) {
	for name, scene := range scenes.All {
		plain := draw(t, scene(), Screen{Width: 80}, false)
		ascii := draw(t, scene(), Screen{Width: 80, ASCII: true}, false)
		for _, r := range ascii {
			require.Less(t, r, rune(128), "%s: %q", name, r)
		}
		assert.Len(t, ascii, utf8.RuneCountInString(plain), name)
	}
}

func TestWideNamesEveryClaimAndDevice(t *testing.T) {
	got := draw(t, scenes.FullOfSmall(), Screen{Width: 140}, true)
	for slot := range 8 {
		for start := range 7 {
			assert.Contains(t, got, scenes.MIG(slot, "1g.10gb", start)+" ")
			assert.Contains(t, got, fmt.Sprintf("(claim small-%02d-gpu-x7k2p)", slot*7+start))
		}
	}
}

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		label string
		width int
		want  string
	}{
		{"1g.10gb", 7, "1g.10gb"}, {"1g.10gb", 6, "1g"}, {"1g.10gb", 1, ""},
		{"1g.10gb+me", 7, "1g+me"}, {"1g.10gb+me", 4, "1g"},
		{"whole GPU", 8, "whole"}, {"whole GPU", 4, "who…"},
		{"something-else", 6, "somet…"},
	} {
		assert.Equal(t, c.want, shorten(c.label, c.width), "%s in %d", c.label, c.width)
	}
}

// Objects that a broken or a later driver published must not make us fall over.
func TestOddObjectsDoNotPanic(t *testing.T) {
	odd := scenes.OnePool("node-a", "x", gpu.Counters{"memory-slice-x": 1, "memory-slice-3": 1},
		resourceapi.Device{Name: "bare"},
		scenes.Device("x", "over", "", "", 0, gpu.Counters{"memory-slice-9": 4, "nonsense": 1}))
	odd[0].Spec.Pool.Name, odd[1].Spec.Pool.Name = "elsewhere/x", "elsewhere/x"
	in := scenes.Scene{Objects: cluster.Objects{Slices: odd, Claims: []resourceapi.ResourceClaim{scenes.Claim("a", "b", "c", 0, "d")}}}
	for width := range 120 {
		assert.NotPanics(t, func() { draw(t, in, Screen{Width: width}, false) })
	}
}

func TestManyThatWaitAreCounted(t *testing.T) {
	s := &cluster.Summary{Selector: "gpu=yes", Only: []string{}}
	for i := range 9 {
		s.Waiting = append(s.Waiting, cluster.Waiting{Namespace: "default", Claim: fmt.Sprintf("c-%d", i), Pod: fmt.Sprintf("p-%d", i)})
	}
	for i := range 4 {
		s.Waiting = append(s.Waiting, cluster.Waiting{Namespace: "team", Pod: fmt.Sprintf("p-%d", i)})
	}
	assert.Equal(t, `No node has the labels gpu=yes.

9 claims wait: default/c-0, default/c-1, default/c-2, 6 more (kubectl tranche why p-0 -n default)
4 pods wait: team/p-0, team/p-1, team/p-2, 1 more (kubectl tranche why p-0 -n team)
`, drawn(t, Screen{Width: 140}, func(p *Page) { Draw(p, s, false) }))
}

// Where no GPU is published, the picture says by whom.
func TestWithoutGPUs(t *testing.T) {
	for by, s := range map[string]cluster.Summary{
		"No GPUs are published by the nodes with the labels a=b.\n\nWhat to check:\n": {Selector: "a=b", Only: []string{"node-a"}},
		"No GPUs are published by the nodes with the labels a=b.\n\nWhat":             {Selector: "a=b"},
		"No GPUs are published by node-a.\n\nWhat":                                    {Only: []string{"node-a"}},
		"No GPUs are published by node-a, node-b.\n\nWhat":                            {Only: []string{"node-a", "node-b"}},
		"No node publishes GPUs yet.\n\nWhat":                                         {Only: []string{}},
	} {
		assert.Contains(t, drawn(t, Screen{Width: 80}, func(p *Page) { Draw(p, &s, false) }), by)
	}
}

func TestMemoryModes(t *testing.T) {
	n := cluster.Node{GPUs: []cluster.GPU{{}, {}, {}, {}}}
	for i, mode := range []string{"NPS4", "", "NPS1", "NPS4"} {
		n.GPUs[i].MemoryMode = mode
	}
	assert.Equal(t, []string{"NPS1", "NPS4"}, memoryModes(n))
}

// A device with several holders has a line for each, also where others share one.
func TestCompactEntries(t *testing.T) {
	holder := func(name string) cluster.Holder {
		return cluster.Holder{Namespace: "team", Claim: name, Pods: []string{name}}
	}
	held := func(holders ...cluster.Holder) cluster.Held {
		return cluster.Held{DeviceKind: cluster.DeviceKind{Label: "1g.10gb"}, Holders: holders}
	}
	admin, amount, idle, hidden := holder("e"), holder("f"), holder("g"), cluster.Holder{Hidden: true}
	admin.Admin, amount.Consumed, idle.Pods = true, cluster.Amounts{"memory": resource.MustParse("1Gi")}, nil
	d := &drawing{Page: &Page{Screen: Screen{Width: 80}}}
	d.holders([]cluster.Held{held(holder("a"), holder("b")), held(holder("c")), held(holder("d")), held(admin), held(amount), held(idle), held(hidden), held(hidden), held(hidden)})
	assert.Equal(t, `    1g.10gb     team/a (claim a)
    1g.10gb     team/b (claim b)
    1g.10gb ×2  team: c, d
    1g.10gb     watched by team/e (claim e)
    1g.10gb     team/f (claim f) has 1Gi of memory
    1g.10gb     no pod (claim team/g)
    1g.10gb ×3  other namespaces
`, d.String())
	assert.True(t, d.compacted)
}
