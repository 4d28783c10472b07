package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/hardware/simulate/inventory"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/figures"
	"github.com/tranche-dev/tranche/test/nodes"
)

type sl = []*resourceapi.ResourceSlice

func cpuNow() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// onePool joins ours to one pool.
func onePool(in sl) sl {
	out := sl{}
	counters := in[0].DeepCopy()
	counters.Spec.Devices = nil
	counters.Spec.SharedCounters = nil
	out = append(out, counters)
	for _, s := range in {
		s = s.DeepCopy()
		gpuName := s.Spec.Pool.Name
		if i := strings.LastIndex(gpuName, "/"); i >= 0 {
			gpuName = gpuName[i+1:]
		}
		short := gpuName
		for _, c := range s.Spec.SharedCounters {
			c.Name = short
			counters.Spec.SharedCounters = append(counters.Spec.SharedCounters, c)
		}
		if len(s.Spec.Devices) == 0 {
			continue
		}
		for i := range s.Spec.Devices {
			for j := range s.Spec.Devices[i].ConsumesCounters {
				s.Spec.Devices[i].ConsumesCounters[j].CounterSet = short
			}
		}
		out = append(out, s)
	}
	for i, s := range out {
		s.Name = fmt.Sprintf("%05x-gpu.tranche.dev-node-a-%05d", i, i)
		s.Spec.Pool = resourceapi.ResourcePool{Name: "node-a", Generation: 1, ResourceSliceCount: int64(len(out))}
	}
	return out
}

func each(in sl, f func(d *resourceapi.Device)) sl {
	for _, s := range in {
		for i := range s.Spec.Devices {
			f(&s.Spec.Devices[i])
		}
	}
	return in
}

func typeOf(d *resourceapi.Device) string { return *d.Attributes["type"].StringValue }

var variants = map[string]func(sl) sl{
	"today":                          func(in sl) sl { return in },
	"onepool":                        onePool,
	"onepool+memory":                 func(in sl) sl { return withMemory(onePool(in)) },
	"lean":                           func(in sl) sl { return lean(withMemory(onePool(in))) },
	"lean no7":                       func(in sl) sl { return no7(lean(withMemory(onePool(in)))) },
	"lean no7, 8 attrs":              func(in sl) sl { return attrs(no7(lean(withMemory(onePool(in))))) },
	"lean no7, 8 attrs, whole first": func(in sl) sl { return wholeFirst(attrs(no7(lean(withMemory(onePool(in)))))) },
	"no shares":                      func(in sl) sl { return noShares(attrs(no7(lean(withMemory(onePool(in)))))) },
	"no me":                          func(in sl) sl { return noMe(noShares(attrs(no7(lean(withMemory(onePool(in))))))) },
	"nocounters": func(in sl) sl {
		in = onePool(in)
		return each(in, func(d *resourceapi.Device) { d.ConsumesCounters = nil })
	},
}

func wholeFirst(in sl) sl {
	for _, s := range in {
		ds := s.Spec.Devices
		if i := slices.IndexFunc(ds, func(d resourceapi.Device) bool { return typeOf(&d) == "gpu" }); i > 0 {
			w := ds[i]
			s.Spec.Devices = append([]resourceapi.Device{w}, slices.Delete(ds, i, i+1)...)
		}
	}
	return in
}
func noMe(in sl) sl {
	for _, s := range in {
		s.Spec.Devices = slices.DeleteFunc(s.Spec.Devices, func(d resourceapi.Device) bool { return strings.Contains(d.Name, "-me-") })
	}
	return in
}
func noShares(in sl) sl {
	for _, s := range in {
		s.Spec.Devices = slices.DeleteFunc(s.Spec.Devices, func(d resourceapi.Device) bool { return typeOf(&d) == "share" })
	}
	return in
}

func attrs(in sl) sl {
	return each(in, func(d *resourceapi.Device) {
		for _, a := range []resourceapi.QualifiedName{"isolation", "placementStart", "architecture", "driverVersion", "parentUUID"} {
			delete(d.Attributes, a)
		}
	})
}

func withMemory(in sl) sl {
	for i := range in[0].Spec.SharedCounters {
		in[0].Spec.SharedCounters[i].Counters["memory"] = resourceapi.Counter{Value: resource.MustParse("81152Mi")}
	}
	return each(in, func(d *resourceapi.Device) {
		v := d.Capacity["memory"].Value
		if typeOf(d) != "mig" || strings.Contains(d.Name, "7g") {
			v = resource.MustParse("81152Mi")
		}
		d.ConsumesCounters[0].Counters["memory"] = resourceapi.Counter{Value: v}
	})
}

func lean(in sl) sl {
	return each(in, func(d *resourceapi.Device) {
		if typeOf(d) != "mig" || strings.Contains(d.Name, "7g") {
			maps.DeleteFunc(d.ConsumesCounters[0].Counters, func(n string, _ resourceapi.Counter) bool { return n != "memory" })
		}
	})
}

func no7(in sl) sl {
	for i := range in[0].Spec.SharedCounters {
		delete(in[0].Spec.SharedCounters[i].Counters, "memory-slice-7")
	}
	return each(in, func(d *resourceapi.Device) { delete(d.ConsumesCounters[0].Counters, "memory-slice-7") })
}

type world struct {
	name    string
	slices  sl
	nodes   []*corev1.Node
	classes allocation.Classes
	class   string
	cel     any
}

func makeWorld(t *testing.T, name string, slicesOfOne sl, classes []*resourceapi.DeviceClass, nodes int) *world {
	w := &world{name: name, classes: allocation.Classes{}}
	for _, c := range classes {
		w.classes[c.Name] = c
	}
	for n := range nodes {
		node := fmt.Sprintf("node-%04d", n)
		w.nodes = append(w.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{corev1.LabelHostname: node}}})
		for _, s := range slicesOfOne {
			s = s.DeepCopy()
			s.Spec.NodeName = &node
			s.Name = strings.ReplaceAll(s.Name, nodeName, node)
			s.Spec.Pool.Name = strings.ReplaceAll(s.Spec.Pool.Name, nodeName, node)
			data, err := s.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			d := &resourceapi.ResourceSlice{}
			if err := d.Unmarshal(data); err != nil {
				t.Fatal(err)
			}
			w.slices = append(w.slices, d)
		}
	}
	return w
}

const rusageThread = 1

func threadCPU() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(rusageThread, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type sim struct {
	*world
	cache *cel.Cache
	state structured.AllocatedState
	r     *rand.Rand
	held  map[string]int
	next  int
	ms    map[string][]float64
	bytes map[string][]float64
}

func (w *sim) pod(t *testing.T, class string) {
	claims := []*resourceapi.ResourceClaim{allocator.Claim("claim", allocator.Request("gpu", class, 1))}
	ctx := context.Background()
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	w.next += 20
	c0 := threadCPU()
	a, err := structured.NewAllocator(ctx, allocation.Features, w.state, w.classes, w.slices, w.cache)
	if err != nil {
		t.Fatal(err)
	}
	type found struct {
		node string
		res  resourceapi.AllocationResult
	}
	var all []found
	for i := range 20 {
		n := w.nodes[(w.next+i)%len(w.nodes)]
		res, err := a.Allocate(ctx, n, claims)
		if err != nil {
			t.Fatal(err)
		}
		if len(res) > 0 {
			all = append(all, found{n.Name, res[0]})
		}
	}
	w.ms[class] = append(w.ms[class], (threadCPU()-c0).Seconds()*1000)
	runtime.ReadMemStats(&m1)
	w.bytes[class] = append(w.bytes[class], float64(m1.TotalAlloc-m0.TotalAlloc)/1e6)
	if len(all) == 0 {
		t.Fatal("none")
	}
	w.r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	best := all[0]
	for _, f := range all {
		if w.held[f.node] < w.held[best.node] {
			best = f
		}
	}
	w.held[best.node]++
	allocation.Hold(w.state, best.res.Devices.Results)
}

func TestLab(t *testing.T) {
	runtime.LockOSThread()
	inv, _ := inventory.Load("h100x8")
	cards, err := nodes.NVIDIACards(t.Context(), inv, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	classes, err := allocator.Classes("../../deployments/helm/testdata/defaults.yaml")
	if err != nil {
		t.Fatal(err)
	}
	shared, err := nodes.WithShares(cards, true)
	if err != nil {
		t.Fatal(err)
	}
	worlds := []*world{makeWorld(t, "rival", nodes.NVIDIASlices(nodeName, cards), nodes.ForDriver(classes, nodes.NVIDIADriver), 100)}
	for _, v := range strings.Split(os.Getenv("LAB"), ";") {
		ours, err := slicesOf(shared)
		if err != nil {
			t.Fatal(err)
		}
		worlds = append(worlds, makeWorld(t, v, variants[v](ours), classes, 100))
	}
	var sims []*sim
	for _, w := range worlds {
		sims = append(sims, &sim{world: w, cache: allocation.NewCache(10), state: allocation.Nothing(), r: rand.New(rand.NewSource(1)), held: map[string]int{}, ms: map[string][]float64{}, bytes: map[string][]float64{}})
	}
	pods, _ := strconv.Atoi(os.Getenv("PODS"))
	debug.SetGCPercent(-1)
	if p := os.Getenv("PROFILE"); p != "" {
		f, _ := os.Create(p)
		pprof.StartCPUProfile(f)
		defer pprof.StopCPUProfile()
	}
	use := strings.Split(os.Getenv("CLASSES"), ";")
	for _, class := range use {
		for pod := range pods {
			for _, s := range sims {
				pprof.Do(context.Background(), pprof.Labels("w", s.name), func(context.Context) { s.pod(t, class) })
			}
			if pod%3 == 2 {
				runtime.GC()
			}
		}
	}
	for _, class := range use {
		fmt.Println(class)
		for _, s := range sims {
			ms, by := s.ms[class][3:], s.bytes[class][3:]
			base := sims[0].ms[class][3:]
			var ratio []float64
			for i := range ms {
				ratio = append(ratio, ms[i]/base[i])
			}
			fmt.Printf("  %-34s %6.2f ms %5.2f MB  time %.3f  bytes %.3f\n", s.name, figures.Median(ms), figures.Median(by), figures.Median(ratio), figures.Median(by)/figures.Median(sims[0].bytes[class][3:]))
		}
	}
}
