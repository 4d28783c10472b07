package workload

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKindOf(t *testing.T) {
	for _, test := range []struct {
		milli, gpus int
		want        string
	}{
		{50, 1, "1g.10gb"},
		{125, 1, "1g.10gb"},
		{126, 1, "1g.20gb"},
		{143, 1, "2g.20gb"},
		{250, 1, "2g.20gb"},
		{251, 1, "3g.40gb"},
		{428, 1, "3g.40gb"},
		{429, 1, "4g.40gb"},
		{500, 1, "4g.40gb"},
		{501, 1, "GPU"},
		{1000, 1, "GPU"},
		{1000, 4, "4 GPUs"},
		{1000, 8, "8 GPUs"},
	} {
		k, err := kindOf(test.milli, test.gpus)
		require.NoError(t, err)
		assert.Equal(t, test.want, Kinds[k].String(), "%d/1000 of %d GPUs", test.milli, test.gpus)
	}
	_, err := kindOf(1000, 3)
	require.EqualError(t, err, "no kind has 1000/1000 of 3 GPUs")
}

const podList = `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
a,4000,8192,1,220,,LS,Running,0,100,0
b,4000,8192,1,220,,LS,Running,0,100,20
c,4000,8192,1,220,,LS,Running,0,1100,100
never-scheduled,4000,8192,1,220,,LS,Pending,0,100,
no-gpu,4000,8192,0,0,,LS,Running,0,100,0
months,88000,8192,8,1000,,LS,Running,0,12902960,0
`

func TestDerive(t *testing.T) {
	shapes, err := derive(strings.NewReader(podList))
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, writeTable(&b, shapes))
	assert.Equal(t, `kind,cpu_milli,memory_mib,lifetime_seconds,pods
2g.20gb,4000,8192,90,2
2g.20gb,4000,8192,1000,1
8 GPUs,88000,8192,604800,1
`, b.String())
	again, err := readTable(strings.NewReader(b.String()))
	require.NoError(t, err)
	assert.Equal(t, shapes, again)

	_, err = derive(strings.NewReader(strings.Replace(podList, "a,4000", "a,x", 1)))
	require.ErrorContains(t, err, "pod 1: cpu_milli")
	_, err = readTable(strings.NewReader("kind\n"))
	require.ErrorContains(t, err, "first line")
}

func TestArrivals(t *testing.T) {
	all, err := All()
	require.NoError(t, err)
	pods := 0.0
	for _, s := range all[0].Shapes {
		pods += s.Weight
	}
	assert.InDelta(t, 6203, pods, 0, "pods with GPUs that were scheduled")

	for _, w := range all {
		const gpus, load = 4000, 0.8
		claims := w.Arrivals(gpus, load, 20000, 1)
		held, demand := 0.0, 0.0
		for i, c := range claims {
			require.True(t, i == 0 || claims[i-1].Arrival <= c.Arrival)
			require.LessOrEqual(t, c.CPU, int64(224_000))
			if c.Arrival < 0 {
				held += Kinds[c.Kind].GPUs()
			} else {
				demand += Kinds[c.Kind].GPUs() * c.Life
			}
		}
		assert.InDelta(t, load*gpus, held, GPUsPerNode, w.Name)
		assert.InEpsilon(t, load*gpus, demand/claims[len(claims)-1].Arrival, 0.25, w.Name)
		sum, large := 0.0, 0.0
		for k, share := range w.Popularity() {
			sum += share
			if k >= FirstLarge {
				large += share
			}
		}
		assert.InDelta(t, 1, sum, 1e-9)
		if w.Name == "few-large" {
			assert.InDelta(t, 0.05, large, 1e-9)
		}
	}
}
