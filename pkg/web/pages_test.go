package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/gpunodes"
	"github.com/tranche-dev/tranche/test/scenes"
)

var (
	mainPart = regexp.MustCompile(`(?s)<main.*</main>`)
	large    = regexp.MustCompile(`<(a class="n"|article|details|div|figure|form|h1|h2|header|li|nav|p|section|table|tr|ul)[ >]`)
	framing  = regexp.MustCompile(`<(a|body|button|dialog|dt|form|h1|h2|input|link|meta|p|script|title)[ >]`)
	hashed   = regexp.MustCompile(`-[\w-]{12}\.(css|js|svg)"`)
)

// mainOf is a page without header and footer, with a line for each element of some size.
func mainOf(w *httptest.ResponseRecorder) string {
	return large.ReplaceAllString(mainPart.FindString(w.Body.String()), "\n$0") + "\n"
}

// load adds the objects of a scene to what a page shows.
func (f *fixture) load(t *testing.T, o cluster.Objects, plans ...v1beta1.PartitionPlan) *fixture {
	for i := range o.Slices {
		o.Slices[i].Name = fmt.Sprintf("%s-%d", *o.Slices[i].Spec.NodeName, i)
	}
	require.NoError(t, f.store.Load(o, plans...))
	f.store.Step(t.Context())
	return f
}

// troubled is a cluster in which much is under way, and much has failed.
func troubled() (cluster.Objects, v1beta1.PartitionPlan) {
	o := scenes.Switching().Objects
	a := gpunodes.Node{GPUNode: o.GPUNodes[0]}
	o.GPUNodes[0] = a.Had("", "whole", v1beta1.ResultSucceeded, "", "", 2300*time.Millisecond, 0).
		Had("whole", "cpx", v1beta1.ResultRolledBack, "HardwareFailed", "the driver silently kept NPS1", 92*time.Second, 12).GPUNode
	failed := scenes.SwitchFailed()
	failed.GPUNodes[0].Name = "node-d"
	o.GPUNodes = append(o.GPUNodes, failed.GPUNodes...)
	tainted := scenes.H100("node-e", 1)
	scenes.Taint(tainted, func(name string) bool { return strings.HasSuffix(name, "-0") },
		resourceapi.DeviceTaint{Key: names.TaintForeignPartition, Value: "made-by-somebody-else", Effect: resourceapi.DeviceTaintEffectNoSchedule})
	o.Slices = slices.Concat(o.Slices, scenes.MI300X("node-b", 0), scenes.MI300X("node-d", 0), tainted)
	watcher := scenes.Claim("monitoring", "dcgm", "node-a", 0, scenes.GPUOf(0)+"-monitor")
	scenes.Result(&watcher).AdminAccess = new(true)
	idle := scenes.Claim("team", "kept", "node-a", 1, scenes.MIG(1, "3g.40gb", 4))
	idle.Status.ReservedFor = nil
	o.Claims = append(o.Claims, watcher, idle,
		scenes.Claim("team", "gone", "node-a", 0, scenes.GPUOf(0)+"-mig-1g-5gb-3"), scenes.Claim("team", "lost", "node-b", 5, scenes.MIG(5, "3g.40gb", 0)), scenes.WaitingClaim("team", "waits", "gpu.tranche.dev", ""))
	plan := gpunodes.NewPlan("fleet", "cpx", 3).Counts(v1beta1.PlanNodeCounts{Selected: 1000, Updated: 450, Switching: 20, Failed: 11, SetAside: 1, Waiting: 518})
	plan.Status.FailedNodes = []v1beta1.PlanNode{{NodeName: "node-d", Reason: "HardwareFailed", Message: "it failed"}}
	plan.Status.SetAsideNodes = []v1beta1.PlanNode{{NodeName: "node-b", Reason: "DrainBlocked"}}
	return o, plan.PartitionPlan
}

// Look at the golden files: they are what browsers get.
func TestGolden(t *testing.T) {
	used := newUses(8)
	f := newFixture(t, 3, func(o *Options) { o.Usage = used })
	for _, c := range f.objects.Claims {
		if c.Status.Allocation != nil {
			used.claims[scenes.Result(&c).Device+"/"+c.Namespace+"/"+c.Name] = "compute 10 %"
		}
	}
	for name, path := range paths {
		golden.Equal(t, filepath.Join("testdata", name+".html"), mainOf(f.get(path)))
	}
	golden.Equal(t, "testdata/fleet-names.html", mainOf(newFixture(t, 13).get("/")))
	o, plan := troubled()
	f = newFixture(t, 0).load(t, o, plan)
	for name, path := range map[string]string{
		"fleet": "/", "node": "/nodes/node-a", "amd": "/nodes/node-b", "tainted": "/nodes/node-e", "gpu": "/nodes/node-a/" + scenes.GPUOf(0), "rollouts": "/rollouts",
	} {
		golden.Equal(t, filepath.Join("testdata", "troubled-"+name+".html"), mainOf(f.get(path)))
	}
}

// What is around all pages, and the page to sign in.
func TestGoldenFrame(t *testing.T) {
	f := newFixture(t, 1, func(o *Options) { o.Base, o.User = "/base", func(*http.Request) string { return "ann" } })
	w := httptest.NewRecorder()
	f.SignIn(w, httptest.NewRequest(http.MethodGet, "/base/", nil), "/pending?filter=a", "It is wrong.")
	frame := strings.Replace(f.get("/base/fits?profile=none").Body.String(), f.mark(f.store.Snapshot().Version), "MARK", 1)
	for name, page := range map[string]string{"frame": mainPart.ReplaceAllString(frame, "<main></main>"), "sign-in": w.Body.String()} {
		golden.Equal(t, filepath.Join("testdata", name+".html"), hashed.ReplaceAllString(framing.ReplaceAllString(page, "\n$0"), `-HASH.$1"`)+"\n")
	}
}

// Up to 12 nodes are drawn as cards, and up to 150 with their names.
func TestDensityOfTheFleet(t *testing.T) {
	assert.Contains(t, newFixture(t, 0).get("/").Body.String(), "No node publishes GPUs yet")
	for nodes, density := range map[int]string{12: "cards", 13: "named", 150: "named", 151: "dense"} {
		o := cluster.Objects{}
		for i := range nodes {
			o.Slices = append(o.Slices, scenes.L4(fmt.Sprint("node-", i), 0)...)
		}
		assert.Contains(t, newFixture(t, 0).load(t, o).get("/").Body.String(), `class="group `+density+`"`, nodes)
	}
}

// Long lists are cut, and say how much is left out.
func TestLongLists(t *testing.T) {
	f := newFixture(t, 20)
	assert.Contains(t, f.get("/pending/vision/train-9000").Body.String(), "And 8 more nodes. All of them: kubectl tranche why train-9000 -n vision -o wide")
	many := cluster.Objects{}
	for i := range maxPending - 1 { // beside 3 that wait anyway
		many.Claims = append(many.Claims, scenes.WaitingClaim("default", fmt.Sprint("c-", i), "gpu.tranche.dev", fmt.Sprint("p-", i)))
	}
	for i := range maxPlaces + 3 {
		many.Slices = append(many.Slices, scenes.L4(fmt.Sprintf("node-%02d", i), 0)...)
	}
	f = newFixture(t, 0).load(t, many)
	pending := f.get("/pending").Body.String()
	assert.Equal(t, maxPending, strings.Count(pending, `<li class="card"`))
	assert.Contains(t, pending, "And 2 more. Ask about one: ")
	places := f.get("/fits?profile=whole+gpu").Body.String()
	assert.Contains(t, places, "<b>28</b> <span>more whole GPU fit now, on 28 nodes</span>")
	assert.Contains(t, places, "And 3 more nodes.")
}

// A share is counted as it is typed; where there are none, the page says how to enable them.
func TestSharesThatFit(t *testing.T) {
	f := newFixture(t, 0)
	require.NoError(t, f.store.Load(cluster.Objects{Slices: scenes.GPUs("node-0", 1, scenes.H100)}))
	f.store.Step(t.Context())
	none := f.get("/fits?profile=30Gi").Body.String()
	assert.Contains(t, none, "No node publishes shares of GPUs.")
	assert.Regexp(t, "(?s)Not shared, with about as much.*>3g.40gb<.*40 GiB.*>4g.40gb<.*>7g.80gb<.*80 GiB.*>whole GPU<", none)
	assert.NotRegexp(t, "(?s)Not shared.*>2g.20gb<", none)
	assert.Contains(t, f.get("/fits?profile=8Gi+of+1g.10gb").Body.String(), "No node publishes memory shares of 1g.10gb.")
	assert.Contains(t, f.get("/fits?profile=1/3").Body.String(), "This is no share: 1/3 is not a multiple of 0.001: ask for 0.333.")
	f.load(t, scenes.Shared().Objects)
	golden.Equal(t, "testdata/fits-share.html", mainOf(f.get("/fits?profile=8Gi")))
	assert.NotContains(t, f.get("/fits?profile=8Gi,+50%25+of+compute").Body.String(), "Not shared", "no partition is limited in compute")
	assert.Contains(t, f.get("/fits?profile=90Ti").Body.String(), "No GPU could ever give it")
	assert.Contains(t, f.get("/fits?profile=8Gi+of+cpx").Body.String(), "No node publishes memory shares of cpx.")
	assert.Contains(t, f.get("/fits?profile=0.5+of+cpx").Body.String(), "No node publishes fraction shares of cpx.")
	assert.Contains(t, f.get("/fits?profile=nothing").Body.String(), "No node publishes nothing.")
	share := &overview.Ask{By: gpu.ByMemory, Amount: gpu.Amount{Memory: 8 << 30}}
	for want, room := range map[string]overview.Room{
		"You are not allowed to see all claims, so it is not known what is free.": {Known: true, Uncertain: true},
		"<b>1</b> <span>more share fits now</span>":                               {Known: true, Count: 1, Share: share},
		"No node publishes shares of whole GPUs.":                                 {Shared: true, Share: share},
	} {
		assert.Contains(t, render(f.roomFor(room)), want)
	}
	assert.Contains(t, render(gpuBadges(&cluster.GPU{Mode: &cluster.Mode{Name: "CPX", Held: 1, Of: 8}})), "CPX: 1 of 8 held")
}
