package picture

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

var update = flag.Bool("update", false, "write the pictures in testdata anew")

// scenes are the clusters whose pictures are kept in testdata, each at several
// widths. Look at the files: they are what people see.
var scenes = map[string]func() Input{
	"no-cards":      func() Input { return Input{} },
	"idle":          func() Input { return Input{Slices: cards("node-a", 8, h100Card)} },
	"56-partitions": fullOfSmall,
	"mixed":         mixed,
	"whole-cards":   wholeCards,
	"tainted":       tainted,
	"two-nodes":     twoNodes,
	"unknown-type":  unknownType,
	"unpublished":   unpublished,
	"incomplete":    incomplete,
	"hidden":        hidden,
	"partial":       partial,
	"amd":           amd,
	"amd-busy":      amdBusy,
	"both-vendors":  bothVendors,
	"shared":        shared,
	"following":     following,
	"switching":     switching,
	"switch-failed": switchFailed,
}

func fullOfSmall() Input {
	in := Input{Slices: cards("node-a", 8, h100Card)}
	for slot := range 8 {
		for start := range 7 {
			pod := fmt.Sprintf("small-%02d", slot*7+start)
			in.Claims = append(in.Claims, claim("default", pod, "node-a", slot, mig(slot, "1g.10gb", start)))
		}
	}
	in.Claims = append(in.Claims, waitingClaim("default", "small-56-gpu-9qx4z", "gpu-mig-1g-10gb.tranche.dev", "small-56"))
	return in
}

func mixed() Input {
	in := Input{Slices: cards("node-a", 3, h100Card)}
	shared := claim("team-b", "train-0", "node-a", 0, mig(0, "2g.20gb", 2))
	shared.Status.ReservedFor = append(shared.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "train-1"})
	idle := claim("team-b", "kept", "node-a", 1, mig(1, "3g.40gb", 4))
	idle.Name, idle.Status.ReservedFor = "kept-for-later", nil
	monitor := claim("monitoring", "dcgm-8fj2l", "node-a", 1, mig(1, "3g.40gb", 4))
	result(&monitor).AdminAccess = new(bool)
	*result(&monitor).AdminAccess = true
	in.Claims = []resourceapi.ResourceClaim{
		claim("default", "notebook", "node-a", 0, mig(0, "1g.10gb+me", 0)),
		claim("default", "vectoradd-6d8f9c7b4-abcde", "node-a", 0, mig(0, "1g.10gb", 1)),
		shared, idle, monitor,
	}
	return in
}

func wholeCards() Input {
	in := Input{Slices: cards("node-a", 8, h100Card)}
	for slot := range 7 {
		in.Claims = append(in.Claims, claim("default", fmt.Sprintf("whole-%d", slot), "node-a", slot, cardOf(slot)))
	}
	return in
}

func tainted() Input {
	in := Input{Slices: cards("node-a", 3, h100Card), Claims: []resourceapi.ResourceClaim{
		claim("default", "train-0", "node-a", 0, mig(0, "3g.40gb", 0)),
	}}
	ofCard := func(slot int) func(string) bool {
		return func(name string) bool { return strings.HasPrefix(name, cardOf(slot)) }
	}
	taint(in.Slices, ofCard(0), resourceapi.DeviceTaint{Key: "tranche.dev/unhealthy", Value: "xid-79", Effect: resourceapi.DeviceTaintEffectNoExecute})
	// Somebody else made a partition at the start of the second card.
	covered := func(name string) bool {
		return ofCard(1)(name) && strings.HasSuffix(name, "-0") // the card's own name ends so, too
	}
	taint(in.Slices, covered, resourceapi.DeviceTaint{Key: "tranche.dev/foreign-partition", Value: "made-by-somebody-else", Effect: resourceapi.DeviceTaintEffectNoSchedule})
	return in
}

func twoNodes() Input {
	in := Input{
		Slices: append(cards("node-b", 4, l4Card), cards("node-a", 2, h100Card)...),
		Nodes:  []corev1.Node{node("node-a", corev1.ConditionTrue, false), node("node-b", corev1.ConditionFalse, true)},
		Claims: []resourceapi.ResourceClaim{
			claim("team-a", "infer-0", "node-b", 1, cardOf(1)),
			claim("team-a", "infer-1", "node-a", 0, mig(0, "4g.40gb", 0)),
			waitingClaim("team-b", "b-gpu", "gpu.tranche.dev", ""),
		},
	}
	foreign := claim("net", "fast", "node-a", 1, cardOf(1))
	result(&foreign).Driver = "nic.example.com"
	in.Claims = append(in.Claims, foreign)
	return in
}

// amd has cards in two modes, one that is held whole, and a free one.
func amd() Input {
	in := Input{Slices: cards("node-b", 4, mi300x)}
	for i, pod := range []string{"rank-0", "rank-1", "rank-2", "rank-3", "notebook"} {
		in.Claims = append(in.Claims, claim("team-a", pod, "node-b", 0, xcpOf(0, "cpx", i)))
	}
	in.Claims = append(in.Claims,
		claim("team-b", "train", "node-b", 1, xcpOf(1, "dpx", 1)),
		claim("team-b", "whole", "node-b", 2, cardOf(2)),
		waitingClaim("team-b", "half-gpu-9qx4z", "gpu-xcp-dpx.tranche.dev", "half"))
	return in
}

// amdBusy has a card that a process outside Kubernetes keeps in its mode, and
// one of which a partition is missing.
func amdBusy() Input {
	in := Input{Slices: cards("node-b", 2, mi300x)}
	other := func(name string) bool {
		return strings.HasPrefix(name, cardOf(0)) && !strings.Contains(name, "-cpx-")
	}
	taint(in.Slices, other, resourceapi.DeviceTaint{Key: "gpu.tranche.dev/busy", Effect: resourceapi.DeviceTaintEffectNoSchedule})
	missing := func(name string) bool { return name == xcpOf(1, "cpx", 7) }
	taint(in.Slices, missing, resourceapi.DeviceTaint{Key: "gpu.tranche.dev/unhealthy", Effect: resourceapi.DeviceTaintEffectNoSchedule})
	in.Claims = append(in.Claims, claim("team-a", "rank-0", "node-b", 1, xcpOf(1, "cpx", 0)))
	return in
}

// bothVendors is a claim that a card of either vendor satisfies, twice.
func bothVendors() Input {
	return Input{
		Slices: append(cards("node-a", 2, h100Card), cards("node-b", 2, mi300x)...),
		Claims: []resourceapi.ResourceClaim{
			claim("default", "either-7d5b4-8k2lm", "node-a", 0, mig(0, "1g.20gb", 6)),
			claim("default", "either-7d5b4-x9z4q", "node-b", 0, xcpOf(0, "cpx", 0)),
		},
	}
}

// unknownType is what a card may look like whose driver says little, and a
// shared one.
func unknownType() Input {
	total := gpu.Counters{"memory": 192 << 30}
	var devices []resourceapi.Device
	for i := range 8 {
		d := published(cardOf(0), fmt.Sprintf("%s-cpx-%d", cardOf(0), i), "AMD Instinct MI300X", "xcp", 0, gpu.Counters{"memory": 24 << 30})
		devices = append(devices, d)
	}
	devices = append(devices, published(cardOf(0), cardOf(0)+"-spx-0", "AMD Instinct MI300X", "xcp", 0, total))
	share := published(cardOf(1), cardOf(1)+"-memory-share", "NVIDIA L4", "share", 1, gpu.Counters{"memory": 24 << 30})
	share.AllowMultipleAllocations = new(bool)
	*share.AllowMultipleAllocations = true
	odd := published(cardOf(2), "quantum", "Odd One", "qpu", 2, nil)

	in := Input{Slices: onePool("node-a", cardOf(0), total, devices...)}
	in.Slices = append(in.Slices, onePool("node-a", cardOf(1), gpu.Counters{"memory": 24 << 30}, share)...)
	in.Slices = append(in.Slices, onePool("node-a", cardOf(2), nil, odd)...)
	for i, pod := range []string{"a", "b"} {
		c := claim("default", pod, "node-a", 1, share.Name)
		result(&c).ConsumedCapacity = map[resourceapi.QualifiedName]quantity{"memory": mustParse(fmt.Sprintf("%dGi", 4+i))}
		in.Claims = append(in.Claims, c)
	}
	in.Claims = append(in.Claims,
		claim("default", "c", "node-a", 0, cardOf(0)+"-cpx-2"),
		claim("default", "d", "node-a", 2, "quantum"))
	return in
}

func unpublished() Input {
	return Input{Slices: cards("node-a", 1, h100Card), Claims: []resourceapi.ResourceClaim{
		claim("default", "here", "node-a", 0, mig(0, "1g.10gb", 0)),
		claim("default", "gone", "node-a", 0, cardOf(0)+"-mig-1g-5gb-3"),
		claim("default", "lost", "node-z", 5, mig(5, "3g.40gb", 0)),
	}}
}

func incomplete() Input {
	in := Input{Slices: cards("node-a", 2, h100Card)}
	next := in.Slices[0]
	next.Name, next.Spec.Pool.Generation = "newer", 2
	in.Slices = append(in.Slices, next)
	return in
}

func hidden() Input {
	in := fullOfSmall()
	in.Namespace = "team-a"
	in.Claims = append(in.Claims[:53], claim("team-a", "mine", "node-a", 7, mig(7, "1g.10gb", 6)))
	return in
}

func partial() Input {
	in := mixed()
	in.Partial = true
	in.Notes = []string{"you may list resourceclaims in the namespace default only: what somebody else holds looks free here."}
	return in
}

func draw(t *testing.T, in Input, o Options) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Draw(&b, Build(in), o))
	return b.String()
}

func TestPictures(t *testing.T) {
	for name, scene := range scenes {
		for _, width := range []int{60, 80, 140} {
			t.Run(fmt.Sprintf("%s at %d", name, width), func(t *testing.T) {
				got := draw(t, scene(), Options{Width: width})
				file := filepath.Join("testdata", fmt.Sprintf("%s.%d.txt", name, width))
				if *update {
					require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				}
				want, err := os.ReadFile(file)
				require.NoError(t, err, "run the test with -update and look at the new file")
				assert.Equal(t, string(want), got)
			})
		}
	}
}

// A line may be longer than the terminal only for a word that is: a command or
// a name that people copy.
func TestNoLineIsWiderThanTheTerminal(t *testing.T) {
	for name, scene := range scenes {
		for _, width := range []int{80, 100, 140, 200} {
			for _, line := range strings.Split(draw(t, scene(), Options{Width: width}), "\n") {
				if !strings.Contains(line, "    kubectl") {
					assert.LessOrEqual(t, utf8.RuneCountInString(line), width, "%s at %d: %s", name, width, line)
				}
			}
		}
	}
}

func TestBarsOfAllCardsEndInOneColumn(t *testing.T) {
	for name, scene := range scenes {
		ends := map[int]bool{}
		for _, line := range strings.Split(draw(t, scene(), Options{Width: 80}), "\n") {
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
	for name, scene := range scenes {
		colored := draw(t, scene(), Options{Width: 100, Color: true})
		assert.Contains(t, colored, "\x1b[", name)
		assert.Equal(t, squeeze(draw(t, scene(), Options{Width: 100})), squeeze(escape.ReplaceAllString(colored, "")), name)
	}
}

func TestWithoutColorThereIsNoEscape(t *testing.T) {
	for name, scene := range scenes {
		assert.NotContains(t, draw(t, scene(), Options{Width: 100}), "\x1b", name)
	}
}

func TestASCIIIsASCIIAndAligned(t *testing.T) {
	for name, scene := range scenes {
		plain := draw(t, scene(), Options{Width: 80})
		ascii := draw(t, scene(), Options{Width: 80, ASCII: true})
		for _, r := range ascii {
			require.Less(t, r, rune(128), "%s: %q", name, r)
		}
		assert.Len(t, ascii, utf8.RuneCountInString(plain), name)
	}
}

func TestWideNamesEveryClaimAndDevice(t *testing.T) {
	got := draw(t, fullOfSmall(), Options{Width: 140, Wide: true})
	for slot := range 8 {
		for start := range 7 {
			assert.Contains(t, got, mig(slot, "1g.10gb", start)+" ")
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
		{"whole card", 9, "whole"}, {"whole card", 4, "who…"},
		{"something-else", 6, "somet…"},
	} {
		assert.Equal(t, c.want, shorten(c.label, c.width), "%s in %d", c.label, c.width)
	}
}
