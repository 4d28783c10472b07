// Package translate turns what pods ask for in the way of KAI, HAMi and nos into claims, as the
// chart's admission policies do (templates/_translate.tpl): a test of both has the same pods. It
// also has claims for the resources of device plugins, which the policies leave alone.
//
// keys.go has the keys of all projects, pod.go tells whose way a pod has, kai.go, hami.go, nos.go and plain.go have one each.
//
// Everything is pure.
package translate
