from instep.stage.pandas_free import settle

settle()
