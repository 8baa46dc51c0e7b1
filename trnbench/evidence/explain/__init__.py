"""Why a measured step takes other than predicted: causes, how well each explains it, tests."""
