package usage

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Node is how much a node's GPUs are used. `kubectl tranche top -o json` prints its JSON form.
type Node struct {
	Name string `json:"name"`
	// Values are the sums of memory and power, and the means of the ratios.
	Values
	GPUs []GPU `json:"gpus"`
	// Unread says why nothing is known.
	Unread []text.Unread `json:"unread,omitempty"`
	// Old says why the values are not of now.
	Old string `json:"-"`
}

// GPU is how much one GPU is used.
type GPU struct {
	Name string `json:"name"`
	UUID string `json:"uuid,omitempty"`
	Values
	// Users hold the GPU, or a share of it.
	Users      []User      `json:"users,omitempty"`
	Partitions []Partition `json:"partitions,omitempty"`
}

// Partition is how much a partition is used.
type Partition struct {
	UUID string `json:"uuid,omitempty"`
	// Instance is the number by which the vendor's tools know it.
	Instance string `json:"gpuInstanceID,omitempty"`
	Profile  string `json:"profile,omitempty"`
	Values
	Users []User `json:"users,omitempty"`
}

// User is how much a pod uses of a GPU or of a partition. What several pods use by one claim belongs
// to none of them.
type User struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"podName,omitempty"`
	Claim     string `json:"claimName,omitempty"`
	Values
	// Device is the name of the device that it has, and of its type. Of several devices, it is that of one.
	Device string `json:"-"`
	of     gpu.Type
}

// Pod is how much a pod uses of all that it has.
type Pod struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"podName"`
	Node      string   `json:"nodeName"`
	Devices   []Device `json:"devices"`
	Values
}

// Device is a device of which a pod has all or a share.
type Device struct {
	GPU  string `json:"gpuName"`
	UUID string `json:"uuid,omitempty"`
	// Type is that of the device that the pod has: of a share, UUID and Profile are those of what is shared.
	Type    gpu.Type `json:"type,omitempty"`
	Profile string   `json:"profile,omitempty"`
}

// String names the device for people.
func (d Device) String() string { return cmp.Or(d.Profile, d.GPU) }

// PodList has the pods by name.
type PodList struct {
	Items []Pod `json:"items"`
	// Unread are the nodes whose pods are not known.
	Unread []text.Unread `json:"unread,omitempty"`
}

// NodeOf groups the rows of a node's plugin by GPUs and partitions.
func NodeOf(name string, rows []Row) Node {
	gpus := map[string]*device{}
	for _, r := range rows {
		of := gpus[r.GPU]
		if of == nil {
			of = &device{parts: map[string]*device{}}
			gpus[r.GPU] = of
		}
		if r.partition() {
			key := r.UUID + "/" + r.Instance + "/" + r.Profile
			if of.parts[key] == nil {
				of.parts[key] = &device{}
			}
			of = of.parts[key]
		}
		of.rows = append(of.rows, r)
	}
	n := Node{Name: name, GPUs: []GPU{}}
	var sum total
	for id, d := range gpus {
		g := d.gpu(id)
		n.GPUs = append(n.GPUs, g)
		sum.add(g.Values)
	}
	slices.SortFunc(n.GPUs, func(a, b GPU) int { return cmp.Compare(a.Name, b.Name) })
	n.Values = sum.values()
	return n
}

func (r *Row) partition() bool {
	return r.Instance != "" || r.Profile != "" || r.ParentUUID != "" && r.ParentUUID != r.UUID
}

// share reports whether a row is of what a pod uses of a device that it shares.
func (r *Row) share() bool { return r.Type == string(gpu.TypeShare) }

// device has the rows of a GPU or a partition, and those of its partitions.
type device struct {
	rows  []Row
	parts map[string]*device
}

func (d *device) gpu(name string) GPU {
	g := GPU{Name: name}
	g.Values, g.Users = d.values()
	for _, r := range d.rows {
		g.UUID = cmp.Or(g.UUID, r.UUID)
	}
	for _, part := range d.parts {
		p := Partition{UUID: part.rows[0].UUID, Instance: part.rows[0].Instance, Profile: part.rows[0].Profile}
		p.Values, p.Users = part.values()
		g.Partitions = append(g.Partitions, p)
		g.UUID = cmp.Or(g.UUID, part.rows[0].ParentUUID)
	}
	slices.SortFunc(g.Partitions, func(a, b Partition) int {
		return cmp.Or(cmp.Compare(number(a.Instance), number(b.Instance)), cmp.Compare(a.UUID, b.UUID))
	})
	return g
}

func number(instance string) int {
	n, _ := strconv.Atoi(instance) // zero if it is none
	return n
}

// values are those of the device itself, and those of each user. If only users are known, they are
// the device's together.
func (d *device) values() (Values, []User) {
	var own, all Values
	var users []User
	for _, r := range d.rows {
		if !r.share() {
			own.max(r.Values)
		}
		if r.Namespace == "" {
			continue
		}
		i := slices.IndexFunc(users, func(u User) bool {
			return u.Namespace == r.Namespace && u.Pod == r.Pod && (r.Pod != "" || u.Claim == r.Claim)
		})
		if i < 0 {
			i = len(users)
			users = append(users, User{Namespace: r.Namespace, Pod: r.Pod, Claim: r.Claim, Device: r.Device, of: gpu.Type(r.Type)})
		}
		users[i].max(r.Values)
	}
	for _, u := range users {
		used := all.MemoryUsed
		all.max(u.Values)
		all.MemoryUsed = used
		add(&all.MemoryUsed, u.MemoryUsed)
	}
	own.fill(all)
	return own, users
}

// Pods adds up what each pod uses.
func Pods(nodes []Node) PodList {
	type sums struct {
		Pod
		total
	}
	all := map[[2]string]*sums{}
	count := func(node string, device Device, u User) {
		if u.Pod == "" {
			return
		}
		key := [2]string{u.Namespace, u.Pod}
		p := all[key]
		if p == nil {
			p = &sums{Pod: Pod{Namespace: u.Namespace, Name: u.Pod, Node: node}}
			all[key] = p
		}
		p.Devices = append(p.Devices, device)
		p.add(u.Values)
	}
	for i := range nodes {
		for _, g := range nodes[i].GPUs {
			for _, u := range g.Users {
				count(nodes[i].Name, Device{g.Name, g.UUID, u.of, ""}, u)
			}
			for _, p := range g.Partitions {
				for _, u := range p.Users {
					count(nodes[i].Name, Device{g.Name, p.UUID, u.of, p.Profile}, u)
				}
			}
		}
	}
	out := PodList{Items: make([]Pod, 0, len(all)), Unread: unreadOf(nodes)}
	for _, p := range all {
		p.Values = p.values()
		out.Items = append(out.Items, p.Pod)
	}
	slices.SortFunc(out.Items, func(a, b Pod) int { return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name)) })
	return out
}

// unreadOf says which nodes' pods are not known, or known by old values, once for each reason.
func unreadOf(nodes []Node) (all []text.Unread) {
	names := map[text.Unread][]string{}
	for i := range nodes {
		for _, u := range nodes[i].Unread {
			u.Consequence = "the pods of %s are not known"
			names[u] = append(names[u], nodes[i].Name)
		}
		if nodes[i].Old != "" {
			u := text.Unread{Message: nodes[i].Old, Consequence: "the values of the pods of %s are old"}
			names[u] = append(names[u], nodes[i].Name)
		}
	}
	for u, of := range names {
		u.Consequence = fmt.Sprintf(u.Consequence, text.List(of, 3))
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b text.Unread) int {
		return cmp.Or(cmp.Compare(a.Consequence, b.Consequence), cmp.Compare(a.Message, b.Message))
	})
	return all
}

// fields are all values, for what is done with each.
func (v *Values) fields() []**float64 {
	return []**float64{&v.MemoryUsed, &v.MemoryTotal, &v.Compute, &v.Engine, &v.Power}
}

// max takes over what is larger.
func (v *Values) max(o Values) {
	theirs := o.fields()
	for i, field := range v.fields() {
		if other := *theirs[i]; other != nil && (*field == nil || **field < *other) {
			*field = other
		}
	}
}

// fill takes over what is not known.
func (v *Values) fill(o Values) {
	theirs := o.fields()
	for i, field := range v.fields() {
		if *field == nil {
			*field = *theirs[i]
		}
	}
}

// add adds what is known.
func add(to **float64, value *float64) {
	if value == nil {
		return
	}
	sum := *value
	if *to != nil {
		sum += **to
	}
	*to = &sum
}

// total adds up memory and power, and takes the mean of the ratios.
type total struct {
	sum             Values
	compute, engine float64 // how many are known
}

func (t *total) add(v Values) {
	sums := t.sum.fields()
	for i, value := range v.fields() {
		add(sums[i], *value)
	}
	if v.Compute != nil {
		t.compute++
	}
	if v.Engine != nil {
		t.engine++
	}
}

func (t *total) values() Values {
	v := t.sum
	if v.Compute != nil {
		*v.Compute /= t.compute
	}
	if v.Engine != nil {
		*v.Engine /= t.engine
	}
	return v
}
