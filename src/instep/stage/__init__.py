from instep.stage.pandas_free import hide_pandas

hide_pandas()
