// Package formats reads the configuration files of other projects, and detects which project's a
// file is: mig-parted, NVIDIA's device plugin and DRA driver, AMD's device config manager, Kaiwo, nos.
//
// read.go splits files into documents and unwraps ConfigMaps and lists. detect.go tells whose a file
// is, objects.go reads the objects of projects, the labels of nodes, and
// objects with pods. parse.go has files
// converted, and names the PartitionProfiles. helm.go finds files in the values of Helm charts, combine.go
// combines two labels of a Node, distinct.go finds names that are there twice.
package formats
